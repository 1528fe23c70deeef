"""Atlas: an offline image benchmark drawn by code.

Eight domains mirror the datasets CLIP continual learning is usually measured on. Images are drawn when
they are asked for and depend on their key alone, in every process and on every platform. Labelled images
(``render``) and unlabelled scenes (``render_reference``) share the drawing code; so do the captioned drawings that
the `nano` model was pretrained on (tools/pretrain/captioned.py).
"""

from __future__ import annotations

from . import domains  # noqa: F401  (registers the domains, before anything draws on one of them)
from .benchmark import SPLITS, render
from .extras import EXTRAS
from .reference import render_reference
from .registry import DOMAINS, Domain, register
from .styles import STYLES

__all__ = ["DOMAINS", "EXTRAS", "SPLITS", "STYLES", "Domain", "register", "render", "render_reference"]
