"""The embedded default: the shipped model, the demo, and the figures that are told about them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from method_runs import LEARNING
from short_demo import short_demo
from tasso.cli import demo
from tasso.data import atlas
from tasso.data.images import shared
from tasso.data.images.transforms import normalise
from tasso.errors import TassoError
from tasso.experiments.plans import all_jobs
from tasso.models.clip import Clip
from tasso.models.loading import NANO, load_clip
from tasso.report import SETTINGS, metrics, read_study

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def nano() -> Clip:
    return load_clip("nano")


def test_nano_loads_in_plain_open_clip_with_the_same_embeddings(nano: Clip) -> None:
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{NANO}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{NANO}", bpe_path=str(NANO / "bpe_nano.txt.gz"))
    texts = ["a photo of a biplane.", "two dogs run through the grass"]
    with torch.no_grad():
        expected = model.eval().encode_text(tokenizer(texts), normalize=True)
        torch.testing.assert_close(nano.encode_texts(texts), expected)
        image = atlas.render("flowers", 0, 0)
        theirs = model.encode_image(preprocess(Image.fromarray(image))[None], normalize=True)
        pixels = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 255
        torch.testing.assert_close(nano.encode_images(normalise(pixels, nano.preprocess)), theirs, rtol=1e-4, atol=1e-5)


def test_vocabulary_beside_the_weights_is_found_from_any_directory(
    nano: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_clip("nano").tokenizer.vocab_size == 6656


def test_nano_knows_the_drawn_domains_a_little(nano: Clip) -> None:
    """Well above chance and well below perfect, on a few images of every domain."""
    rates = []
    for name, domain in atlas.DOMAINS.items():
        labels = np.arange(len(domain.class_names)).repeat(2)
        images = np.stack([atlas.render(name, int(c), 500 + i, split="test") for i, c in enumerate(labels)])
        pixels = normalise(torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255, nano.preprocess)
        classes = nano.class_embeddings(domain.class_names, ("a photo of a {}.",))
        with torch.no_grad():
            predicted = (nano.encode_images(pixels) @ classes.mT).argmax(-1)
        rates.append(float((predicted == torch.from_numpy(labels)).float().mean()))
    assert min(rates) > 2 / 12
    assert 0.45 < np.mean(rates) < 0.8


@pytest.fixture(scope="module")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo")
    return out, short_demo(out)


def test_demo_table_is_complete(finished_demo: tuple[Path, str]) -> None:
    out, printed = finished_demo
    assert sorted(path.name for path in out.iterdir()) == ["finetune", "report.html", "tasso", "tasso-both"]
    for word in ("Zero-shot", "fine-tuning", "TASSO", "MTIL", "MCIL", "After 2 tasks", str(out / "report.html")):
        assert word in printed
    for method in ("finetune", "tasso"):
        results = json.loads((out / method / "results.json").read_text())
        assert results["finished"]
        for setting in ("mtil", "mcil"):
            assert f"{results[setting]['metrics']['accuracy']:.2f}" in printed


def test_demo_methods_get_the_same_chances(tmp_path: Path) -> None:
    plain, ours = (demo.demo_config(name, tmp_path, 1).to_dict() for name in ("finetune", "tasso"))
    assert {key for key in plain if plain[key] != ours[key]} == {"method", "label", "out"}
    plans, setup = demo.full_plans(seed=1)
    jobs = all_jobs(plans, setup)
    assert sorted(job.options["method"]["name"] for job in jobs) == LEARNING
    differ = {key for job in jobs for key in job.options if job.options[key] != jobs[0].options.get(key)}
    assert differ == {"method", "lr"}


def test_demo_runs_share_their_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[Path | None] = []
    monkeypatch.setattr(demo, "learn", lambda config: places.append(shared._folder))
    with pytest.raises(TassoError):  # nothing has been learned
        demo.run_demo(tmp_path, 1, {})
    assert len(places) == len(demo.METHODS_SHOWN)
    [place] = set(places)
    assert place is not None
    assert place.parent.parent == tmp_path


def test_demo_page_is_complete(finished_demo: tuple[Path, str]) -> None:
    page = (finished_demo[0] / "report.html").read_text()
    names = [name for domain in list(atlas.DOMAINS)[:2] for name in atlas.DOMAINS[domain].class_names]
    assert all(name in page for name in names)
    assert page.count("data:image/png;base64,") == len(names)
    assert page.count("<svg") >= 2
    assert not re.search(r'(src|href)="https?:', page)


def test_second_demo_repeats_nothing(finished_demo: tuple[Path, str]) -> None:
    out, printed = finished_demo
    before = (out / "tasso" / "results.json").stat().st_mtime_ns
    assert short_demo(out) == printed
    assert (out / "tasso" / "results.json").stat().st_mtime_ns == before


def test_full_demo_runs_every_method(tmp_path: Path) -> None:
    printed = short_demo(tmp_path, "--full")
    assert f"{len(LEARNING)} runs in " in printed
    results = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/results.json")]
    assert {one["method"] for one in results if one["finished"] and one["seed"] == 7} == set(LEARNING)
    page = (tmp_path / "index.html").read_text()
    for label in ("TASSO, both towers", "fine-tuning (both towers)", "GIFT, drawn images", "MoE-Adapters"):
        assert label in page, label
        assert label in printed, label
    assert page.count("data:image/png;base64,") == 24, "one image per class of two domains"
    first, tally = page.index("tasks learned one after the other, plain fine-tuning"), page.index("Of 24 claims")
    assert first < tally, "the demo says first what it shows"
    index = (tmp_path / "index.md").read_text()
    for words in (
        "shows replay rather than GIFT",
        "## Verdict",
        "Not tested on this benchmark: ",
        "Data sets of atlas",
        "![curves-atlas-limit-tasks-2-test-per-class-1-s1-mtil]",
    ):
        assert words in index


def test_tables_say_what_the_results_say() -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "results_page.py"), "--check"], check=True)


def test_card_figures_equal_the_results() -> None:
    found = json.loads((ROOT / "results" / "nano-zero-shot.json").read_text())
    card = (NANO / "README.md").read_text()
    for title, part, setting in (
        ("mtil-mini, MTIL mean of 8 tasks", "zips", "mtil"),
        ("mtil-mini, MCIL mean", "zips", "mcil"),
        ("atlas, MTIL mean of 8 domains", "drawn", "mtil"),
        ("atlas, MCIL mean", "drawn", "mcil"),
    ):
        old, new = (found[part][model]["mean"][setting] for model in ("nano-clip", "nano"))
        assert f"| {title} | {old:.1f} | {new:.1f} |" in card
    assert f"{(NANO / 'open_clip_model.safetensors').stat().st_size:,} bytes" in card
    parameters = sum(p.numel() for p in load_clip("nano").model.parameters())
    assert f"{parameters / 1e6:.1f} million parameters" in card


def test_demo_results_keep_what_is_promised() -> None:
    """On three seeds: at most half of fine-tuning's forgetting and degradation, more accuracy, in both settings."""
    frame = read_study(ROOT / "results" / "demo.csv")
    assert set(frame["order"].map(len)) == {5}
    steps = frame[frame["metric"] == "steps"].pivot(index="step", columns="run", values="value")
    assert (steps == 20).all(axis=None)
    for setting in SETTINGS:
        found = metrics(frame, setting)
        for seed in (1102, 1, 2):
            a, b = found.loc[f"finetune-{seed}"], found.loc[f"tasso-{seed}"]
            assert b["accuracy"] > a["accuracy"]
            assert b["forgetting"] <= a["forgetting"] / 2
            # Where fine-tuning has lost nothing, neither may TASSO.
            assert b["zero_shot_degradation"] <= max(a["zero_shot_degradation"], 0) / 2
