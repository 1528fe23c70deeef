"""Fenced code blocks of Markdown."""

from __future__ import annotations

import re


def fenced(text: str, *languages: str) -> list[tuple[str, str]]:
    """Language and content of the fenced blocks in these languages, in order."""
    return re.findall(rf"^```({'|'.join(languages)})\n(.*?)^```", text, re.M | re.S)


def code_in(text: str, *languages: str) -> list[str]:
    """The content alone."""
    return [content for _, content in fenced(text, *languages)]
