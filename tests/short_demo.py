"""`tasso demo` in seconds: the real command with two tasks of two steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import few_images

CODE = """
import sys
from functools import partial

import torch

from tasso import cli
from tasso.cli import demo
from tasso.report.figures import style

torch.set_num_threads(1)
style.DPI = 40
style.RULES["pdf.fonttype"] = 3
demo.make_setup = partial(demo.make_setup, by_method={"gift": {"method.images": 8}})
short = dict(batch_size=4, reference_batch_size=4, test_per_class=1, reference_images=8)
demo.QUICK.update(short)
demo.FULL.update(short)
cli.main(["demo", *sys.argv[1:]])
"""


def short_demo(out: Path, *words: str, python: str | Path = sys.executable, **environment: str) -> str:
    """What the command prints, run by any Python that has tasso."""
    command = [str(python), "-c", CODE, *words, "--out", str(out), "--seed", "7", "--steps", "2", "--limit-tasks", "2"]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=out.parent, env=few_images(**environment)
    ).stdout
