"""One direction of imports: a module knows only what stands to its left."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from method_runs import options_for
from tasso.methods import METHODS

SOURCE = Path(__file__).parent.parent / "src" / "tasso"
SHARED = ["version", "errors", "files", "progress", "distributed", "config", "decoding", "kernels"]
ROOMS = ["data", "models", "heads", "methods", "evaluation", "training", "experiments", "report", "serve", "cli"]
LINE = [*SHARED, *ROOMS]


def test_imports_go_one_way() -> None:
    faults = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        owner = parts[0]
        if owner in ("__init__", "__main__"):
            continue
        assert owner in LINE, f"{path}: where does it stand in the line?"
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                words = name.split(".")
                if words[0] == "tasso" and len(words) > 1 and LINE.index(words[1]) > LINE.index(owner):
                    faults.append(f"{'/'.join(parts)} imports {name}")
    assert not faults


@pytest.mark.slow
def test_core_imports_without_command_line_libraries() -> None:
    """The device that trains may have torch and open_clip and nothing else of ours; reports are made elsewhere."""
    code = """
import sys
absent = ("rich", "pandas", "matplotlib", "jinja2", "ray", "submitit", "datasets", "starlette",
          "uvicorn", "scipy", "tensorboard", "wandb", "mlflow")
sys.modules.update(dict.fromkeys(absent))  # as if they were not installed, also for torch, which looks for some
import tasso, tasso.training.learner, tasso.training.run, tasso.training.extend, tasso.training.trackers
import tasso.experiments.sweep.run_jobs, tasso.experiments.paper, tasso.experiments.bench.step
assert not [name for name in sys.modules if name.startswith("tasso.report")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("given", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "ACTIVE"}], ids=str)
def test_threads_that_wait_leave_the_core_to_others(given: dict[str, str]) -> None:
    """Unless the user has said how they wait."""
    names = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
    environment = {name: value for name, value in os.environ.items() if name not in names} | given
    code = f"import os, tasso; print({{name: os.environ[name] for name in {names} if name in os.environ}})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert ast.literal_eval(done.stdout) == (given or {"GOMP_SPINCOUNT": "3000"})


def test_a_model_answers_without_packages_that_it_does_not_need() -> None:
    code = """
import sys, torch
import tasso.training.run, tasso.training.learner, tasso.models.objects, tasso.models.tuning
from tasso.models.loading import load_clip
from tasso.training.optimizers import build_optimizers
assert load_clip("nano").class_embeddings(["cat", "dog"], ("a photo of a {}.",)).isfinite().all()
for name, precision in (("adamw", "float32"), ("adamw", "bfloat16"), ("sgd", "float32")):
    weight = torch.nn.Parameter(torch.zeros(2, 3))
    weight.sum().backward()
    groups = [{"params": [weight], "lr": 0.1, "weight_decay": 0}]
    [optimizer] = build_optimizers(name, groups, (0.9, 0.999), precision=precision)
    optimizer.step()
    assert weight.any()
    optimizer.zero_grad()
heavy = {"torch._dynamo", "transformers", "timm", "pandas", "matplotlib", "datasets", "scipy", "sympy"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_runs_import_neither_the_compiler_nor_what_draws(quick: dict[str, Any], tmp_path: Path) -> None:
    """Together they take longer than torch."""
    for name in METHODS:
        options = {**quick, "method": options_for(name), "steps": 5, "limit_tasks": 1, "out": str(tmp_path / name)}
        options["device"] = "auto"  # on a GPU, steps are captured
        (tmp_path / f"{name}.yaml").write_text(json.dumps(options))  # JSON is YAML
    code = """
import sys
from tasso.cli import main
for file in sys.argv[1:]:
    main(["run", "--config", file])
    heavy = {"torch._dynamo", "matplotlib", "jinja2"} & set(sys.modules)
    assert not heavy, (file, heavy)
"""
    subprocess.run([sys.executable, "-c", code, *map(str, sorted(tmp_path.glob("*.yaml")))], check=True)


@pytest.mark.slow
def test_packages_that_a_model_does_not_need_are_there_for_others() -> None:
    code = """
import tasso.models, open_clip, torch, torchvision
assert open_clip.create_model("ViT-B-16-SigLIP").visual.trunk.patch_embed.num_patches == 196  # one of timm's
assert torch.compile(torch.sin, backend="eager")(torch.zeros(1)) == 0
assert torchvision.ops.roi_align(torch.ones(1, 1, 4, 4), torch.tensor([[0.0, 0, 0, 3, 3]]), 2).shape == (1, 1, 2, 2)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
