"""Captioned drawings for pretraining: keys alone decide, and captions name no held-out class."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

from tasso.data import atlas

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from pretrain import data
from pretrain.captioned import held_out_names, names_held_out, render_captioned

SUM = """
import zlib
from pretrain.captioned import render_captioned
total = 0
for index in range(20):
    image, captions = render_captioned(index)
    total = zlib.crc32(image.tobytes() + " ".join(captions).encode(), total)
print(total)
"""


def test_the_tool_draws_these() -> None:
    images, captions = data.render_chunk(range(3), data.DEFAULT_RENDERER, seed=0, size=32)
    for index in range(3):
        image, texts = render_captioned(index, size=32)
        assert (images[index] == image).all()
        assert captions[index] == texts


def test_drawings_do_not_depend_on_the_process() -> None:
    folders = [Path(data.__file__).parents[1], Path(atlas.__file__).parents[3]]
    sums = []
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(map(str, folders))}
        child = subprocess.run([sys.executable, "-c", SUM], env=env, capture_output=True, text=True, check=True)
        sums.append(int(child.stdout))
    total = 0
    for index in range(20):
        image, captions = render_captioned(index)
        total = zlib.crc32(image.tobytes() + " ".join(captions).encode(), total)
    assert sums == [total, total]


def test_captions_never_name_held_out_classes() -> None:
    for index in range(1500):
        image, captions = render_captioned(index, size=32)
        assert image.shape == (32, 32, 3)
        assert 1 <= len(captions) <= 3
        assert len(set(captions)) == len(captions)
        for caption in captions:
            assert caption.strip()
            assert not any(name in caption for name in held_out_names()), caption
            assert not names_held_out(caption), caption


def test_captions_cover_the_taught_classes() -> None:
    texts = " | ".join(render_captioned(index, size=16)[1][0] for index in range(2500))
    missing = [name for d in atlas.DOMAINS.values() for name in d.taught if name not in texts]
    assert not missing
    assert sum(name in texts for name in atlas.EXTRAS) >= 30
