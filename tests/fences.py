"""Fenced code blocks of Markdown."""

from __future__ import annotations

import re


def code_in(text: str, *languages: str) -> list[str]:
    """Content of the fenced blocks in these languages, in order."""
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, re.M | re.S)
