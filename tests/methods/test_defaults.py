"""What runs take where they say nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from own_images import write_folder
from tasso.cli import main, parse_run_config
from tasso.config import from_dict
from tasso.errors import ConfigError
from tasso.methods import METHODS
from tasso.methods.defaults import run_defaults, shown_defaults, with_defaults
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder

PAPER_MODELS = ("ViT-B-16-quickgelu", "ViT-L-14", "RN50")


def defaults(**options: Any) -> tuple[float | str, float | None, dict[str, Any]]:
    config, method = with_defaults(from_dict(options))
    return config.lr, config.weight_decay, method.hyper_parameters()


@pytest.mark.parametrize("name", METHODS)
def test_large_models_take_the_methods_own_defaults(name: str) -> None:
    own = METHODS[name].run_defaults
    for model in PAPER_MODELS:
        assert defaults(model=model, method=name)[:2] == (own["lr"], own["weight_decay"])


def test_small_models_take_what_was_chosen_for_nano() -> None:
    rates = {name: defaults(method=name)[0] for name in METHODS}
    assert (rates["tasso"], rates["zscl"], rates["moe-adapters"]) == (1e-4, 3e-5, 3e-3)
    assert defaults(model="ViT-S-16")[0] == 1e-4
    assert defaults(method="finetune")[1] == METHODS["finetune"].run_defaults["weight_decay"]


def test_a_method_from_elsewhere_takes_the_rate_of_fine_tuning() -> None:
    class Other(METHODS["finetune"]):  # type: ignore[misc]
        name = "elsewhere:Other"

    class Rated(Other):
        run_defaults: ClassVar[Mapping[str, Any]] = {"lr": 3e-3, "weight_decay": 0.0}

    assert [run_defaults(Other, width)["lr"] for width in (256, 512)] == [1e-4, 1e-5]
    assert shown_defaults(Other)["lr"] == "0.0001 with small models such as nano, else 1e-05"
    assert [run_defaults(Rated, width)["lr"] for width in (256, 512)] == [3e-3, 3e-3]


def test_what_is_given_wins() -> None:
    lr, _, hyper = defaults(lr=7e-6, method={"name": "tasso-both", "rank": 9})
    assert (lr, hyper["rank"], hyper["text_lr_factor"]) == (7e-6, 9, 3)
    assert defaults(method={"name": "tasso-both", "text_lr_factor": 0.5})[2]["text_lr_factor"] == 0.5
    assert defaults(model="ViT-B-16", method="tasso-both")[2]["text_lr_factor"] == 1


def test_another_protocol_counts_more_than_what_was_chosen_for_nano() -> None:
    scales = {protocol: defaults(method="tasso-both", protocol=protocol)[2] for protocol in ("code", "paper")}
    assert [hyper["ce_scale"] for hyper in scales.values()] == [20, 1]
    assert [hyper["delta"] for hyper in scales.values()] == [0.5, 0.5], "no protocol says anything about it"
    assert shown_defaults(METHODS["tasso-both"])["method.ce_scale"] == "20 with small models such as nano, else 0.0"


@pytest.mark.parametrize(("model", "rank"), [("nano", 72), ("ViT-B-16", 144), ("ViT-L-14", 216), ("RN50", 288)])
def test_rank_is_the_papers_share_of_the_width(model: str, rank: int) -> None:
    for method in ("tasso", "tasso-both"):
        assert defaults(model=model, method=method)[2]["rank"] == rank


def test_own_tasks_take_few_steps_on_a_cpu() -> None:
    def rule(**options: Any) -> str | None:
        return resolve(from_dict({"device": "cpu", **options}))[0].step_rule

    assert [rule(tasks=["pets=x"]), rule(tasks=["pets=x"], step_rule="code"), rule()] == ["quick", "code", "code"]


@pytest.mark.slow
def test_own_folders_need_no_other_option(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    places = [f"{name}={write_folder(tmp_path / name, name)}" for name in ("pets", "land")]
    out = tmp_path / "run"
    with caplog.at_level(logging.INFO):
        main(["run", "--tasks", *places, "--steps", "2", "--batch-size", "4", "--reference-batch-size", "4",
              "--device", "cpu", "--out", str(out)])  # fmt: skip
    assert "learning rate 0.0001: tasso-both's, chosen for nano and other small models; --lr changes it" in caplog.text
    assert "reference images: scenes drawn by code (atlas)" in caplog.text
    assert RunFolder(out).read_config().method["rank"] == 72
    results = RunFolder(out).read_results()
    assert results is not None
    assert results["finished"]
    assert results["label"] == "TASSO, both towers", "defaults are not named"


def test_auto_is_the_default_rate_and_null_means_the_same() -> None:
    for config in (from_dict({}), from_dict({"lr": "auto"}), from_dict({"lr": None})):
        assert config.lr == "auto"
        assert config.to_dict()["lr"] == "auto"
        assert with_defaults(config)[0].lr == 1e-4
    assert parse_run_config("tasso run", ["--lr", "auto"]).lr == "auto"
    with pytest.raises(ConfigError, match="expected a number or auto, not 'quick'"):
        parse_run_config("tasso run", ["--lr", "quick"])
