"""tasso data check: what is off is named, with the data set; what was readable is not read again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicas
from conftest import draw
from tasso.cli import data_fingerprint, main
from tasso.cli.data_fingerprint import known_fingerprint
from tasso.config import from_dict
from tasso.data import BENCHMARKS
from tasso.data.annotated import FolderSource
from tasso.data.benchmarks import Benchmark
from tasso.data.benchmarks.paper import annotated
from tasso.data.images import unreadable
from tasso.data.prepare.fingerprint import Fingerprint, allowed, differences
from tasso.data.prepare.options import Options
from tasso.data.prepare.prepare import prepare

NAMES = ("dtd", "eurosat", "flowers-102", "stanford-cars")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepared replicas, and a benchmark under the name mtil whose sizes are theirs."""
    folder = tmp_path / "data"
    for name in (*NAMES, "imagenet"):
        replicas.write(folder, name)
    options = Options(check_archives=False, check_counts=False, download=False, reference_images=0)
    assert not [o.problem for o in prepare([*NAMES, "imagenet"], folder, options) if o.problem]
    sets = (
        annotated("dtd", 3, 15, 9),
        annotated("eurosat", 10, 50, 30),
        annotated("flowers-102", 3, 15, 9),
        annotated("stanford-cars", 3, 24, 9),
    )
    reference = annotated("imagenet", 3, 12, 0, any_length=True)
    monkeypatch.setitem(BENCHMARKS, "mtil", Benchmark("mtil", "", sets, reference, "paper"))
    return folder


def words(root: Path, *more: str) -> list[str]:
    return ["data", "check", "--benchmark", "mtil", "--data-root", str(root), "--reference-images", "12", *more]


def found(root: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    """The report as JSON; the exit code says the same."""
    code = 0
    try:
        main(words(root, "--json", *more))
    except SystemExit as stop:
        code = int(stop.code or 0)
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if report["ok"] else 1)
    return report


def faults(report: dict[str, Any]) -> dict[str, list[str]]:
    sets = report["data_sets"]
    return {s["name"]: [f"{w['what']}: {w['message']}" for w in s["problems"]] for s in sets if s["problems"]}


def edit(root: Path, name: str, prefix: str, change: Any) -> None:
    file = root / name / f"{prefix}_annotations.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def test_good_data_passes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = found(root, capsys)
    assert report["ok"]
    assert [s["images_read"] for s in report["data_sets"]] == [30, 100, 30, 39, 12]
    main(words(root))
    assert capsys.readouterr().out.endswith("all as it should be\n")


def broken_image(root: Path) -> None:
    file = next((root / "dtd" / "images" / "banded").glob("*.jpg"))
    file.write_bytes(file.read_bytes()[:200])


def gone_image(root: Path) -> None:
    (root / "eurosat" / "images" / "River" / "River_0003.jpg").unlink()


def broken_reference(root: Path) -> None:
    next((root / "imagenet").rglob("*.JPEG")).write_bytes(b"")


FAULTS: dict[str, tuple[Any, str, str]] = {
    "a broken image": (broken_image, "dtd", "images cannot be read"),
    "an image that is gone": (gone_image, "eurosat", "River_0003.jpg"),
    "a broken reference image": (broken_reference, "imagenet", "reference images: 1 of 12 images cannot be read: "),
    "fewer images": (
        lambda root: edit(root, "dtd", "dtd", lambda d: d["data"]["train"].pop()), "dtd", "counts: 14 train, not 15"),
    "train in test": (
        lambda root: edit(root, "dtd", "dtd", lambda d: d["data"]["test"].append(d["data"]["train"][0])), "dtd",
        "sets: 1 images are in both train and test"),
    "an image twice": (
        lambda root: edit(root, "dtd", "dtd", lambda d: d["data"]["test"].append(d["data"]["test"][0])), "dtd",
        "sets: 1 images are listed twice in test"),
    "a label shifted": (
        lambda root: edit(root, "dtd", "dtd", lambda d: d["data"]["test"].__setitem__(
            0, [d["data"]["test"][0][0], 2])), "dtd", "class names: the folder banded has images of several classes"),
    "a class without test images": (
        lambda root: edit(root, "dtd", "dtd", lambda d: d["data"].__setitem__(
            "test", [entry for entry in d["data"]["test"] if entry[1]])), "dtd", "no test image of 'banded'"),
    "folder names": (
        lambda root: edit(root, "eurosat", "eurosat", lambda d: d["class_names"].__setitem__(0, "AnnualCrop")),
        "eurosat", "class names: class 0 is 'AnnualCrop', not 'Annual Crop Land'"),
    "not JSON": (
        lambda root: (root / "dtd" / "dtd_annotations.json").write_text("{"), "dtd", "data: "),
    "no such data set": (
        lambda root: (root / "dtd" / "dtd_annotations.json").unlink(), "dtd", "data: "),
    "no reference": (
        lambda root: (root / "imagenet" / "imagenet_annotations.json").unlink(), "imagenet", "data: "),
    "too few reference images": (
        lambda root: edit(root, "imagenet", "imagenet", lambda d: d["data"]["train"].pop()), "imagenet",
        "counts: 11 images, fewer than 12"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAULTS)
def test_what_is_off_is_named(root: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    spoil, name, message = FAULTS[case]
    spoil(root)
    report = found(root, capsys)
    assert list(faults(report)) == [name], "the others are fine"
    assert any(message in fault for fault in faults(report)[name]), faults(report)
    with pytest.raises(SystemExit):
        main(words(root))
    printed = capsys.readouterr().out
    assert "OFF" in printed
    assert printed.endswith("something is off\n")


def test_notes_are_no_faults(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(root, "stanford-cars", "stanfordcars", lambda d: d["class_names"].__setitem__(0, "smart_fortwo 2012"))
    report = found(root, capsys, "--no-decode")
    assert report["ok"]
    notes = next(s["notes"] for s in report["data_sets"] if s["name"] == "stanford-cars")
    assert [note.split(",")[0] for note in notes] == [
        "1 class names do not begin with the year", "1 class names have underscores",
    ]  # fmt: skip


def test_quick_reads_no_image(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "decode_all", None)
    report = found(root, capsys, "--no-decode")
    assert report["ok"]
    assert {s["images_read"] for s in report["data_sets"]} == {0}


def test_readable_images_are_not_read_again(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "CHUNK", 4)
    real, read = FolderSource.read, list[str]()

    def counted(source: FolderSource, key: str) -> bytes:
        read.append(key)
        return real(source, key)

    monkeypatch.setattr(FolderSource, "read", counted)
    broken_image(root)
    first = faults(found(root, capsys))
    assert len(read) == 211
    read.clear()
    assert faults(found(root, capsys)) == first
    assert 1 <= len(read) <= 4, "the chunk with the broken image"
    file = root / "eurosat" / "images" / "River" / "River_0003.jpg"
    draw(3, 3).save(file)
    os.utime(file, (5, 5))
    read.clear()
    found(root, capsys)
    assert "River/River_0003.jpg" in read
    assert len(read) <= 8


def test_a_stopped_check_goes_on(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "CHUNK", 10)
    real, read = FolderSource.read, [0]

    def stops(source: FolderSource, key: str) -> bytes:
        read[0] += 1
        if read[0] == 75:
            raise KeyboardInterrupt
        return real(source, key)

    monkeypatch.setattr(FolderSource, "read", stops)
    with pytest.raises(SystemExit) as stop:
        main(words(root, "--workers", "1"))
    assert stop.value.code == 130
    capsys.readouterr()
    before, read[0] = read[0], 1000
    assert found(root, capsys)["ok"]
    assert read[0] - 1000 <= 211 - (before // 10 - 1) * 10


def test_a_cache_that_cannot_be_written_only_costs_time(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert found(root, capsys)["ok"]


# -- the fingerprint -----------------------------------------------------------------------------------------------


def test_the_papers_rows() -> None:
    known = known_fingerprint("mtil", "ViT-B-16-quickgelu")
    assert known is not None
    assert list(known.mtil.values()) == [23.91, 44.39, 42.22, 67.40, 83.69, 87.27, 65.51, 64.26]
    assert list(known.mcil.values()) == [23.91, 36.52, 32.80, 67.40, 83.15, 87.05, 65.51, 63.68]
    assert known_fingerprint("mtil", "ViT-B-32") is None
    for benchmark in ("mtil-mini", "atlas"):
        own = known_fingerprint(benchmark, "nano")
        assert own is not None
        assert tuple(own.mtil) == tuple(own.mcil) == BENCHMARKS[benchmark].tasks


def rows(root: Path, tiny_model: str) -> dict[str, dict[str, float]]:
    from tasso.training.evaluator import evaluate

    options = {"benchmark": "mtil", "data_root": str(root), "model": tiny_model, "device": "cpu"}
    result = evaluate(from_dict(options))
    return {s: dict(zip(result["tasks"], result[s], strict=True)) for s in ("mtil", "mcil")}


@pytest.mark.slow
def test_a_data_set_that_is_off_is_named_and_by_how_much(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tiny_model: str
) -> None:
    measured = rows(root, tiny_model)
    model = ["--model", tiny_model, "--device", "cpu", "--no-decode"]
    expected = Fingerprint("a stand-in", dict(measured["mtil"]), dict(measured["mcil"]))
    monkeypatch.setattr(data_fingerprint, "known_fingerprint", lambda benchmark, name: expected)
    capsys.readouterr()
    report = found(root, capsys, *model)
    assert report["ok"]
    assert report["fingerprint"]["compared_with"] == "a stand-in"
    # stanford-cars has its official test set: nothing but the tolerance is allowed.
    expected.mcil["stanford-cars"] += 2.0
    report = found(root, capsys, *model)
    value = measured["mcil"]["stanford-cars"]
    assert faults(report) == {
        "stanford-cars": [
            f"fingerprint: zero-shot MCIL accuracy is {value:.2f}, 2.00 points below {value + 2:.2f} "
            "(a stand-in; 0.50 allowed): other class names, prompts or images?"
        ]
    }
    assert found(root, capsys, *model, "--tolerance", "2.5")["ok"]
    # Nine test images of dtd were drawn here: chance alone explains much.
    expected.mcil["stanford-cars"] -= 2.0
    expected.mtil["dtd"] += 2.0
    assert found(root, capsys, *model)["ok"]
    expected.mtil["stanford-cars"] += 3.0
    with pytest.raises(SystemExit):
        main(words(root, *model))
    assert "± 0.50" in capsys.readouterr().out


def test_rows_are_compared_only_with_what_they_hold_for(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tiny_model: str
) -> None:
    wrong = Fingerprint("a stand-in", dict.fromkeys(NAMES, 100.0), dict.fromkeys(NAMES, 100.0))
    monkeypatch.setattr(data_fingerprint, "known_fingerprint", lambda benchmark, name: wrong)
    model = ["--model", tiny_model, "--device", "cpu", "--no-decode"]
    assert found(root, capsys, *model, "--template", "{}")["ok"], "another prompt"
    assert found(root, capsys, *model, "--test-per-class", "2")["ok"], "other test sets"
    part = found(root, capsys, *model, "--sequence", "dtd,eurosat")
    assert not part["ok"]
    assert "expected" not in part["fingerprint"]["rows"]["mcil"]["dtd"], "classes of fewer tasks"
    gone_image(root)
    left = found(root, capsys, *model)
    assert left["fingerprint"]["left_out"] == ["eurosat"]
    assert set(left["fingerprint"]["rows"]["mtil"]) == set(NAMES) - {"eurosat"}


def test_a_model_that_nobody_measured(root: Path, capsys: pytest.CaptureFixture[str], tiny_model: str) -> None:
    main(words(root, "--model", tiny_model, "--device", "cpu", "--no-decode"))
    printed = capsys.readouterr().out
    assert "nothing to compare it with" in printed
    assert printed.endswith("all as it should be\n")


@given(st.floats(0.1, 5), st.floats(0, 100), st.integers(1, 100_000))
def test_what_chance_allows(tolerance: float, expected: float, images: int) -> None:
    assert allowed(tolerance, expected, images, drawn=False) == tolerance
    more = allowed(tolerance, expected, images, drawn=True)
    assert more >= tolerance
    assert allowed(tolerance, expected, images * 4, drawn=True) - tolerance == pytest.approx((more - tolerance) / 2)
    assert allowed(tolerance, 100 - expected, images, drawn=True) == pytest.approx(more, abs=1e-5)  # 100 - ε is 100


def test_chance_against_draws() -> None:
    """Two test sets of 30 % of the same images differ no more than allowed, nearly always."""
    import numpy as np

    rng = np.random.default_rng(0)
    right = rng.random(1000) < 0.6
    limit = allowed(0.0, 60.0, 300, drawn=True)
    draws = [100 * right[rng.permutation(1000)[:300]].mean() for _ in range(2000)]
    differing = np.abs(np.subtract(draws[::2], draws[1::2]))
    assert 0.99 < (differing <= limit).mean() <= 1.0
    assert np.std(np.subtract(draws[::2], draws[1::2])) == pytest.approx(limit / 3, rel=0.1)


def test_differences_have_signs() -> None:
    assert differences({"a": 50.0, "b": 1.0}, {"a": 47.0}, 0.5, {}, []) == {"a": (-3.0, 0.5)}


# -- other benchmarks ----------------------------------------------------------------------------------------------


def test_atlas(capsys: pytest.CaptureFixture[str]) -> None:
    main(["data", "check", "--benchmark", "atlas"])
    assert capsys.readouterr().out.endswith("all as it should be\n")


def test_zips(mini_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["data", "check", "--benchmark", "mtil-mini", "--data-root", str(mini_root), "--json"])
    assert stop.value.code == 1
    report = json.loads(capsys.readouterr().out)
    assert [s["images_read"] for s in report["data_sets"]] == [54] * 8 + [36]
    assert all(fault["what"] in ("counts", "class names") for s in report["data_sets"] for fault in s["problems"])


def test_a_benchmark_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    for more, message in (
        (["--benchmark", "atlas", "--tolerance", "-1"], "tolerance: must be"),
        (["--benchmark", "atlas", "--tolerance", "nan"], "tolerance"),
        (["--benchmark", "mtil2"], "benchmark: no benchmark 'mtil2'"),
        (["--benchmark", "mtil"], "--data-root"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["data", "check", *more])
        assert stop.value.code == 2
        assert message in capsys.readouterr().err
