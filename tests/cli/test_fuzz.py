"""Files changed at random: each is understood or refused with a message, and never ends in a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("hypothesis", reason="no hypothesis here: pip install 'tasso[dev]'")
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bad_inputs import world
from bad_inputs.case import carried_out
from own_images import png, write_shard
from tasso.config import RunConfig
from tasso.data.images.files import read_image
from tasso.data.readers.load import load_own
from tasso.errors import TassoError
from tasso.evaluation.metrics import metrics_of_file
from tasso.files import parse_json, parse_yaml
from tasso.report import read_runs
from tasso.training.run_folder import RunFolder
from tasso.training.tensor_files import read_tensors

Change = Callable[[bytes], bytes]
SOME, FEW = 100, 15
# The same examples on every machine: a test that fails now and then is no test. More of them, and others:
# TASSO_FUZZ=5000 pytest tests/test_fuzz.py
MORE = int(os.environ.get("TASSO_FUZZ", "0"))
usual, rare = (settings(derandomize=not MORE, max_examples=MORE or count, database=None) for count in (SOME, FEW))


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """A way to spoil a file: cut, flip, insert, repeat, swap or put into another encoding."""
    kind = draw(st.sampled_from(["cut", "flip", "insert", "delete", "repeat", "bom", "utf16", "crlf", "nul", "token"]))
    where = draw(st.floats(0, 1))
    length = draw(st.integers(1, 40))
    bits = draw(st.integers(1, 255))
    token = draw(st.sampled_from([
        b"null", b"true", b"-1", b"0", b"1e999", b"NaN", b"99999999999999999999999999", b"[]", b"{}", b'""', b"\\u0000",
        b"[" * 3000, b"{\"a\":" * 1500, b"&a [*a]", b"!!python/name:os.system", b"'", b'"', b",", b"\t", b"\xff\xfe",
        "é🐦".encode(), b"9" * 5000, b"2024-99-99", b"<<: 1", b"? [x]\n: 1\n",
    ]))  # fmt: skip

    def change(content: bytes) -> bytes:
        place = int(where * len(content))
        if kind == "cut":
            return content[:place]
        if kind == "flip" and content:
            place = min(place, len(content) - 1)
            return content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :]
        if kind == "insert":
            return content[:place] + bytes([bits]) * length + content[place:]
        if kind == "delete":
            return content[:place] + content[place + length :]
        if kind == "repeat":
            return content[: place + length] + content[place:]
        if kind == "utf16":
            return content.decode("utf-8", "replace").encode("utf-16")
        head = {"bom": b"\xef\xbb\xbf", "nul": b"\0"}.get(kind, b"")
        if kind == "token":
            return content[:place] + token + content[place + length :]
        return head + content.replace(b"\n", b"\r\n" if kind == "crlf" else b"\n")

    return change


several = st.lists(changes(), min_size=1, max_size=3)


def spoiled(content: bytes, some: list[Change]) -> bytes:
    for change in some:
        content = change(content)
    return content


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return world.build(tmp_path_factory.mktemp("fuzz") / "world")


@pytest.fixture(scope="module")
def place(well: Path) -> Path:
    """A folder for files that are written again and again."""
    folder = well.parent / "place"
    folder.mkdir()
    shutil.copytree(well / "birds", folder / "birds")
    return folder


@contextlib.contextmanager
def refused_at_most(*names: str) -> Iterator[None]:
    """It may be understood; if it is not, the message has one of these names."""
    try:
        yield
    except TassoError as error:
        if not any(name in str(error) for name in names):
            pytest.fail(f"says nothing about {' or '.join(names)}: {error}")


def tried(words: tuple[str, ...], place: Path) -> None:
    outcome = carried_out(words, place)
    assert outcome.code in (0, 1, 2), outcome.said
    assert "Traceback" not in outcome.said
    if outcome.code == 2:
        assert outcome.message.startswith("tasso: "), outcome.said
        assert len(outcome.message) > len("tasso: ") + 5


CONFIG = yaml.safe_dump({
    key: value for key, value in RunConfig().to_dict().items() if value is not None and key not in ("method", "out")
} | {"method": {"name": "tasso", "rank": 6}}).encode()  # fmt: skip


@pytest.mark.slow
@usual
@given(several)
def test_configurations(place: Path, some: list[Change]) -> None:
    (place / "bad.yaml").write_bytes(spoiled(CONFIG, some))
    # Words win over the file: a file that is still good ends here, and nothing is learned.
    tried(("run", "--config", "bad.yaml", "--benchmark", "mtil-mini", "--data-root", "nowhere", "--out", "out"), place)
    assert not (place / "out").exists()


SWEEP = b"""methods: [tasso, finetune]
sequences: [S1, S2]
seeds: [1, 2]
set: {lr: [1e-3, 1e-4]}
for:
  tasso: {method.rank: 6}
steps: 3
"""


@rare
@given(several)
def test_sweeps(place: Path, some: list[Change]) -> None:
    (place / "sweep.yaml").write_bytes(spoiled(SWEEP, some))
    tried(("sweep", "--out", "out", "--dry-run", "--config", "sweep.yaml"), place)


@usual
@given(several)
def test_matrices(place: Path, some: list[Change]) -> None:
    (place / "m.json").write_bytes(spoiled(b'{"zero_shot": [1, 2.5], "matrix": [[10, 20], [30, null]]}', some))
    tried(("metrics", "m.json"), place)


@usual
@given(
    several,
    st.sampled_from(
        ["list.csv", "list.tsv", "list.jsonl", "split_zhou_x.json", "tasks.yaml", "names.json", "names.txt"]
    ),
)
def test_own_tasks(place: Path, some: list[Change], kind: str) -> None:
    rows = [(f"birds/{name}/{number}.png", name) for name in ("jay", "owl") for number in range(3)]
    lists = [[path, int(name == "owl"), name] for path, name in rows]
    texts: dict[str, Any] = {
        "list.csv": "\n".join(["path,label", *(",".join(row) for row in rows)]),
        "list.tsv": "\n".join(["path\tlabel", *("\t".join(row) for row in rows)]),
        "list.jsonl": "\n".join(json.dumps({"path": path, "label": name}) for path, name in rows),
        "split_zhou_x.json": json.dumps({"train": lists, "val": [], "test": lists[:2]}),
        "names.json": json.dumps({"jay": "a jay", "owl": "an owl"}),
        "names.txt": "jay, a jay\nowl, an owl\n",
        "tasks.yaml": "birds:\n  from: birds\n  template: a {}\n",
    }
    (place / kind).write_bytes(spoiled(texts[kind].encode(), some))
    task = {"name": "birds", "from": str(place / kind)}
    if kind.startswith("names"):
        task = {"name": "birds", "from": str(place / "birds"), "names": str(place / kind)}
    with refused_at_most(kind, "birds"):
        if kind == "tasks.yaml":
            from tasso.config.task_specs import parse_tasks

            for found in parse_tasks(str(place / kind)):
                load_own(found, RunConfig())
        else:
            load_own(task, RunConfig())


@usual
@given(several)
def test_annotations(well: Path, place: Path, some: list[Change]) -> None:
    if not (place / "data").exists():
        shutil.copytree(well / "data", place / "data")
    good = (well / "data/dtd/dtd_annotations.json").read_bytes()
    (place / "data/dtd/dtd_annotations.json").write_bytes(spoiled(good, some))
    from tasso.data.annotated import read_annotated

    with refused_at_most("dtd"):
        read_annotated(place / "data", "dtd")


@usual
@given(several)
def test_shards(place: Path, some: list[Change]) -> None:
    good = write_shard(
        place / "good.tar", {f"{n}": {"png": png("food", n, 0), "cls": b"%d kind" % n} for n in range(2)}
    )
    (place / "bad.tar").write_bytes(spoiled(good.read_bytes(), some))
    with refused_at_most("birds"):
        load_own({"name": "birds", "from": str(place / "bad.tar")}, RunConfig(test_share=0.5))


def encoded() -> dict[str, bytes]:
    found = {}
    for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM"):
        stored = io.BytesIO()
        Image.fromarray(world.noise(12, 10, 3)).save(stored, kind)
        found[kind] = stored.getvalue()
    return found


ENCODED = encoded()


@usual
@given(several, st.sampled_from(sorted(ENCODED)))
def test_images(place: Path, some: list[Change], kind: str) -> None:
    file = place / "x.png"
    file.write_bytes(spoiled(ENCODED[kind], some))
    with refused_at_most("x.png"):
        pixels = read_image(file)
        assert pixels.dtype == np.uint8
        assert pixels.shape[-1] == 3


@pytest.mark.slow
@usual
@given(several)
def test_results(well: Path, place: Path, some: list[Change]) -> None:
    if not (place / "run").exists():
        shutil.copytree(well / "run", place / "run")
    (place / "run/results.json").write_bytes(spoiled((well / "run/results.json").read_bytes(), some))
    for read in (lambda: RunFolder(place / "run").read_results(), lambda: read_runs(place / "run"),
                 lambda: metrics_of_file(place / "run")):  # fmt: skip
        with refused_at_most("results.json"):
            read()


@usual
@given(several)
def test_state_files(well: Path, place: Path, some: list[Change]) -> None:
    file = place / "state.safetensors"
    file.write_bytes(spoiled((well / "half/state.safetensors").read_bytes()[: 1 << 20], some))
    with refused_at_most("state.safetensors: damaged"):
        read_tensors(file)


@pytest.mark.slow
@rare
@given(st.lists(changes(), min_size=1, max_size=1))
def test_going_on_from_a_spoiled_state(well: Path, some: list[Change]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "model").symlink_to(well / "model")
        for part in ("data", "half"):
            shutil.copytree(well / part, here / part)
        file = here / "half/state.safetensors"
        file.write_bytes(spoiled(file.read_bytes(), some))
        before = file.read_bytes()
        outcome = carried_out(("run", *world.LEARN, "--steps", "3", "--out", "half"), here)
        assert outcome.code in (0, 2), outcome.said
        if outcome.code == 2:
            assert file.read_bytes() == before
            assert "half" in outcome.message


@pytest.mark.slow
@usual
@given(st.text(max_size=60))
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    for parse in (parse_json, parse_yaml):
        with contextlib.suppress(ValueError):
            parse(text)


@pytest.mark.parametrize("text", ["a: !!int ''", "a: !!float ''", "a: !!bool foo", "a: !!timestamp foo"])
def test_a_value_that_does_not_fit_its_tag_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="does not fit its tag"):
        parse_yaml(text)
