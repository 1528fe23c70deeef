"""Images drawn by the code of the atlas benchmark: nothing to download, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from zlib import crc32

from tasso.data import atlas
from tasso.data.atlas.canvas import Camera, Canvas, Dice, Look, develop
from tasso.data.atlas.registry import Pose
from tasso.data.drawn import SIZE
from tasso.data.task import Array, Source
from tasso.methods.synthetic.generator import OnProgress, Pairs, Request, collect, silent

# The first number of the key of all these images' dice, where the benchmark's and its reference scenes' have 0: so
# they are other images of the same classes, never the ones a task trains or is tested on.
STREAM = crc32(b"synthetic")
SCENE, THING = "scene", "thing"


class SyntheticSource(Source):
    """Keys are `<domain>/<label>/<index>`, `thing/<name>/<index>` or `scene/<index>`."""

    def read(self, key: str) -> Array:
        kind, *what, index = key.split("/")
        if kind == SCENE:
            return atlas.render_reference(int(index), seed=STREAM, size=SIZE)
        if kind == THING:
            return render_thing(what[0], int(index))
        return atlas.render(kind, int(what[0]), int(index), seed=STREAM, size=SIZE)

    def describe(self, key: str) -> str:
        return f"drawn:{key}"


class AtlasGenerator:
    """Draws what a prompt names: a class, or a thing that is no class. The seed says which of its images.

    A prompt that names neither gets an unlabelled scene: the other drawings, those with captions, show one thing
    clearly, and that would be the wrong one.
    """

    stand_in: str = "drawn images"

    def check(self, requests: Sequence[Request] = ()) -> None:
        pass

    def pairs(
        self, prompts: Sequence[str], seeds: Sequence[int], folder: Path, on_progress: OnProgress = silent
    ) -> Pairs:
        chosen = [(f"{subject(prompt)}/{seed}", prompt) for prompt, seed in zip(prompts, seeds, strict=True)]
        on_progress(len(prompts))
        return collect(SyntheticSource(), chosen)


def render_thing(name: str, index: int) -> Array:
    """A thing that is no class of a task, in some domain's scene and seen through the benchmark's camera."""
    dice = Dice(STREAM, crc32(THING.encode()), crc32(name.encode()), index)
    c = Canvas(SIZE, dice, Look(jitter=9))
    # Where the scene is the subject, as in textures, the thing would stand on another class.
    dice.pick([domain for domain in atlas.DOMAINS.values() if not domain.fills_frame]).scene(c)
    with Pose().applied(c):
        atlas.EXTRAS[name](c)
    return develop(c, Camera())


def subject(prompt: str) -> str:
    """The longest name in a prompt (whole words, any case): `<domain>/<label>`, `thing/<name>`, or else `scene`."""
    return next((place for pattern, place in _patterns() if pattern.search(prompt)), SCENE)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """A pattern for each name, the longest first: "person walking a dog" before "person walking"."""
    names = [
        (name, f"{domain.name}/{label}")
        for domain in atlas.DOMAINS.values()
        for label, name in enumerate(domain.class_names)
    ]
    names += [(name, f"{THING}/{name}") for name in atlas.EXTRAS]
    names.sort(key=lambda item: -len(item[0]))
    return tuple((re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE), place) for name, place in names)
