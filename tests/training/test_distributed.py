"""Two processes learn what one learns. Real processes, started by torchrun, with the gloo backend."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from method_runs import LEARNING, options_for
from tasso.config import from_dict
from tasso.distributed import SINGLE_PROCESS, Distributed, check_divisible
from tasso.errors import ConfigError
from tasso.training.learner import Learner, learn
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
STEPS = 20

# Every rank writes its losses in the second task and its final weights to a file.
CHILD = """
import json, sys, torch
torch.set_num_threads(1)
from tasso.config import from_dict
from tasso.training.learner import Learner
from tasso.training.resolve import resolve
from tasso.distributed import init_distributed
from tasso.training.run_folder import RunFolder
distributed = init_distributed(torch.device("cpu"))
jobs = json.load(open(sys.argv[1]))
found = {}
for name, options in jobs.items():
    config, method = resolve(from_dict(options))
    folder = RunFolder(config.out, writes=distributed.is_main)
    if distributed.is_main:
        folder.checkpoints.mkdir(parents=True)
    distributed.barrier()
    learner = Learner(config, method, folder, distributed=distributed)
    learner._learn_task(0)
    training = learner.begin(1)
    losses = []
    for step in range(int(sys.argv[2])):
        losses.append({key: float(term) for key, term in training.advance().items()})
        if step == 1:  # AdamW is invariant to the scale of gradients, so gradients are compared, too
            named = {key: p for group in training.groups for key, p in group.parameters.items()}
            gradients = {key: float(p.grad.norm()) for key, p in named.items() if p.grad is not None}
    training.close()
    weights = sum(float(p.double().abs().sum()) for p in learner.clip.model.parameters())
    rows = learner._evaluate("test", (0, 1))
    sums = learner.head.tensors() if learner.head else {}
    found[name] = {
        "losses": losses, "gradients": gradients, "weights": weights, "mtil": rows.mtil, "mcil": rows.mcil,
        "head": {key: float(tensor.double().abs().sum()) for key, tensor in sums.items()},
    }
json.dump(found, open(f"{sys.argv[3]}-{distributed.rank}.json", "w"))
distributed.barrier()
"""


def torchrun(script: Path, *args: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    """Run a script with torchrun, one thread per process."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*command, str(script), *args], capture_output=True, text=True, env=environment, check=False)


def jobs(quick: dict[str, Any], folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    common = {**quick, "steps": STEPS, "lr": 1e-4}
    every = {name: {**common, "method": options_for(name), "out": str(folder / name)} for name in names}
    # Of thousands of generic texts some have next to no length in the subspace of a tiny model: rounding decides.
    every["tasso-both"]["method"] |= {"anchors": "earlier"}
    others = {
        "head": {**every["finetune"], "head": "lda", "out": str(folder / "head")},
        "lora": {**every["zscl"], "tune": "lora", "out": str(folder / "lora")},
        "rounded": {**every["tasso"], "optimizer_precision": "bfloat16", "out": str(folder / "rounded")},
    }
    return every | others


def single_process(options: dict[str, Any]) -> dict[str, Any]:
    config, method = resolve(from_dict(options))
    folder = RunFolder(config.out)
    folder.checkpoints.mkdir(parents=True)
    learner = Learner(config, method, folder)
    learner._learn_task(0)
    training = learner.begin(1)
    losses, gradients = [], {}
    for step in range(STEPS):
        losses.append({key: float(term) for key, term in training.advance().items()})
        if step == 1:
            named = {key: p for group in training.groups for key, p in group.parameters.items()}
            gradients = {key: float(p.grad.norm()) for key, p in named.items() if p.grad is not None}
    training.close()
    rows = learner._evaluate("test", (0, 1))
    sums = learner.head.tensors() if learner.head else {}
    head = {key: float(tensor.double().abs().sum()) for key, tensor in sums.items()}
    return {"losses": losses, "gradients": gradients, "mtil": rows.mtil, "mcil": rows.mcil, "head": head}


def test_two_processes_learn_what_one_learns(quick: dict[str, Any], tmp_path: Path) -> None:
    """Losses of every method over twenty steps of the second task agree up to the rounding of float32."""
    quick["precision"] = "float32"
    names = LEARNING
    script, jobs_file = tmp_path / "child.py", tmp_path / "jobs.json"
    script.write_text(CHILD)
    jobs_file.write_text(json.dumps(jobs(quick, tmp_path / "two", names)))
    ended = torchrun(script, str(jobs_file), str(STEPS), str(tmp_path / "found"))
    assert ended.returncode == 0, ended.stderr[-2000:]
    first, second = (json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in (0, 1))
    for name, options in jobs(quick, tmp_path / "one", names).items():
        assert first[name] == second[name], f"{name}: ranks must agree to the last bit"
        if name == "moe-adapters":  # it draws noise for each image, and each rank draws for its own shard
            continue
        expected = single_process(options)
        for step, (two, one) in enumerate(zip(first[name]["losses"], expected["losses"], strict=True)):
            # Rounding errors grow with the steps, most in the angle between two embeddings that are almost equal.
            close = {"rel": 2e-3, "abs": 1e-4} if step < STEPS // 2 else {"rel": 5e-3, "abs": 5e-4}
            assert two == pytest.approx(one, **close), f"{name}, step {step}"
        largest = max(expected["gradients"].values())
        assert first[name]["gradients"] == pytest.approx(expected["gradients"], rel=0.02, abs=1e-3 * largest), name
        assert first[name]["mtil"] == pytest.approx(expected["mtil"], abs=6), name
        assert first[name]["head"] == pytest.approx(expected["head"], rel=1e-3), name
        assert bool(first[name]["head"]) == (name == "head")


def test_a_run_of_two_processes_is_resumed_by_one(quick: dict[str, Any], tmp_path: Path) -> None:
    """The command itself, killed in the second task after a saved state and resumed by a single process."""
    whole = learn(from_dict({**quick, "steps": 6, "lr": 1e-4, "out": str(tmp_path / "whole")}))
    out = tmp_path / "run"
    options = {**quick, "steps": 6, "lr": 1e-4, "save_every": 2, "out": str(out)}
    config = tmp_path / "run.yaml"
    config.write_text(json.dumps(options))  # JSON is YAML
    script = tmp_path / "killed.py"
    # Rank 0 kills itself in the second task, after its state was saved.
    script.write_text(
        "import os, signal, sys, torch\n"
        "torch.set_num_threads(1)\n"
        "from tasso.training.run_folder import RunFolder\n"
        "write = RunFolder.write_state\n"
        "def write_and_die(self, state, metadata):\n"
        "    write(self, state, metadata)\n"
        "    if self.writes and metadata['index'] == 1:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "RunFolder.write_state = write_and_die\n"
        "from tasso.cli import main\n"
        f"main(['run', '--config', {str(config)!r}])\n"
    )
    ended = torchrun(script)
    assert ended.returncode != 0, "one was killed, so all have ended"
    assert str(-signal.SIGKILL) in ended.stderr or "SIGKILL" in ended.stderr
    assert (out / "state.safetensors").exists()
    results = learn(from_dict(options))
    assert results["finished"]
    for row, expected in zip(results["mtil"]["matrix"], whole["mtil"]["matrix"], strict=True):
        assert row == pytest.approx(expected, abs=6)
    assert len((out / "log.jsonl").read_text().splitlines()) < 20, "only rank 0 writes"


def test_processes_stop_together_after_the_last_step(quick: dict[str, Any], tmp_path: Path) -> None:
    """Only rank 1 is asked to stop, in the last step of a task, when ranks do not ask each other any more."""
    config = tmp_path / "run.yaml"
    config.write_text(json.dumps({**quick, "steps": 3}))
    script = tmp_path / "stopped.py"
    script.write_text(
        "import os, signal, sys, torch\n"
        "torch.set_num_threads(1)\n"
        "from tasso.training.engine import Training\n"
        "advance = Training.advance\n"
        "def advance_and_ask(self):\n"
        "    terms = advance(self)\n"
        "    if self.step == self.steps and self.clip.distributed.rank == 1:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return terms\n"
        "Training.advance = advance_and_ask\n"
        "from tasso.config import from_dict\n"
        "from pathlib import Path\n"
        "from tasso.files import read_yaml\n"
        "from tasso.training.learner import learn\n"
        "from tasso.training.stopping import Stopped\n"
        "try:\n"
        f"    learn(from_dict(read_yaml(Path({str(config)!r}))))\n"
        "except Stopped as stopped:\n"
        "    open(f'{__file__}.{os.environ[\"RANK\"]}', 'w').write(str(stopped))\n"
    )
    ended = torchrun(script)
    assert ended.returncode == 0, ended.stderr[-2000:]
    for rank in (0, 1):
        assert Path(f"{script}.{rank}").read_text().startswith("stopped after the last step of dtd")
    assert learn(from_dict({**quick, "steps": 3}))["finished"]


def test_shards_of_a_batch() -> None:
    assert [Distributed(rank, 4).shard(8) for rank in range(4)] == [slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 8)]
    assert SINGLE_PROCESS.shard(5) == slice(0, 5)
    check_divisible({"batch_size": 8}, Distributed(0, 4))
    with pytest.raises(ConfigError, match=r"batch_size: must be a multiple of the number of processes \(3\), not 8"):
        check_divisible({"batch_size": 8}, Distributed(0, 3))


def test_collectives_of_a_single_process_are_no_ops() -> None:
    tensor = torch.randn(3, requires_grad=True)
    assert SINGLE_PROCESS.gather(tensor) is tensor
    SINGLE_PROCESS.all_reduce_mean([tensor])
    SINGLE_PROCESS.barrier()
    assert SINGLE_PROCESS.broadcast(tensor, 0) is tensor
    assert SINGLE_PROCESS.main_first(lambda: 7) == 7
    SINGLE_PROCESS.check_equal({"a": tensor}, "test")
    assert SINGLE_PROCESS.any(True, torch.device("cpu"))
    assert not SINGLE_PROCESS.any(False, torch.device("cpu"))


def test_accumulation_needs_a_single_process(quick: dict[str, Any]) -> None:
    config, method = resolve(from_dict({**quick, "accumulate": 2}))
    with pytest.raises(ConfigError, match="accumulate: must be 1 with several processes"):
        Learner(config, method, RunFolder(config.out), distributed=Distributed(0, 2))


def test_weights_that_differ_between_ranks_are_an_error(tmp_path: Path) -> None:
    script = tmp_path / "differ.py"
    script.write_text(
        "import torch\n"
        "from tasso.errors import RunError\n"
        "from tasso.distributed import init_distributed\n"
        "distributed = init_distributed(torch.device('cpu'))\n"
        "same = {'A': torch.ones(3)}\n"
        "distributed.check_equal(same, 'before')\n"
        "try:\n"
        "    distributed.check_equal({**same, 'U': torch.ones(3) * distributed.rank}, 'task one')\n"
        "except RunError as error:\n"
        "    open(f'{__file__}.{distributed.rank}', 'w').write(str(error))\n"
        "distributed.barrier()\n"
    )
    ended = torchrun(script)
    assert ended.returncode == 0, ended.stderr[-2000:]
    for rank in (0, 1):
        assert Path(f"{script}.{rank}").read_text().startswith("task one: U differs between the processes")
