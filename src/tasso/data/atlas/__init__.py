"""Atlas: an offline image benchmark drawn by code.

Eight domains mirror the datasets CLIP continual learning is usually measured on. Images are drawn when
they are asked for and depend on their key alone, in every process and on every platform. Three sources share
the drawing code: labelled images (``render``), unlabelled scenes (``render_reference``) and captioned
drawings in other styles for contrastive pretraining (``render_captioned``).
"""

from __future__ import annotations

from . import domains  # noqa: F401  (registers the domains, before anything draws on one of them)
from .benchmark import SPLITS, render
from .captioned import render_captioned
from .extras import EXTRAS
from .reference import render_reference
from .registry import DOMAINS, Domain, register

__all__ = ["DOMAINS", "EXTRAS", "SPLITS", "Domain", "register", "render", "render_captioned", "render_reference"]
