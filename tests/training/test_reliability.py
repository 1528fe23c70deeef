"""The promises of docs/design.md: full disks, two processes, losses that are not finite, exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from bad_inputs import world
from bad_inputs.case import carried_out, relocate
from tasso.cli import main
from tasso.config import from_dict
from tasso.errors import LESS_MEMORY, ModelError, RunError
from tasso.files import write_atomically
from tasso.methods import METHODS, Batch, register
from tasso.methods.finetune import FineTune
from tasso.models.clip import Clip
from tasso.training.checkpoints import save_checkpoint
from tasso.training.learner import learn
from tasso.training.run_folder import RunFolder

HALF = ("run", *world.LEARN, "--steps", "3", "--save-every", "1", "--out", "half")


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small world, and `whole`: the run `half` without the stop."""
    folder = world.build(tmp_path_factory.mktemp("reliable") / "world")
    assert carried_out((*HALF[:-1], "whole"), folder).code == 0
    return folder


@pytest.fixture
def here(well: Path, tmp_path: Path) -> Path:
    """A copy with a run stopped in its second task, with a resume state after the first of three steps."""
    for part in ("model", "data", "half"):
        shutil.copytree(well / part, tmp_path / part)
    relocate(well, tmp_path)
    return tmp_path


def check_same_end(one: Path, other: Path) -> None:
    """Both runs ended with the same bits, and no temporary file is left."""
    assert not list(one.rglob("*.tmp"))
    first, second = (json.loads((folder / "results.json").read_text()) for folder in (one, other))
    assert first["finished"]
    assert (first["mtil"], first["mcil"], first["alignment"]) == (second["mtil"], second["mcil"], second["alignment"])
    for name in ("01-dtd", "02-eurosat"):
        tensors, expected = (load_file(folder / f"checkpoints/{name}.safetensors") for folder in (one, other))
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[key]) for key, tensor in tensors.items())


# -- a full disk -------------------------------------------------------------------------------------------------

# A child process that runs several commands under a limit on the size of files (RLIMIT_FSIZE): as on a full disk,
# writing begins and then fails.
LIMITED = """
import json, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from pathlib import Path
from bad_inputs.case import carried_out
done = []
for limit, words, place in json.loads(sys.argv[2]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    outcome = carried_out(words, Path(place))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    done.append([outcome.code, outcome.said, outcome.changed])
print(json.dumps(done))
"""


@pytest.mark.slow
def test_a_full_disk_keeps_the_previous_state(well: Path, tmp_path: Path) -> None:
    half = well / "half"
    size = (half / "state.safetensors").stat().st_size
    log = (half / "log.jsonl").stat().st_size
    attempts = {  # file that cannot be written: limit in bytes, command
        "state.safetensors": (size // 2, HALF),
        "checkpoints/02-eurosat.safetensors": (log + 4000, (*HALF, "--save-every", "1000")),
        "log.jsonl": (log + 10, (*HALF, "--save-every", "1000")),
    }
    places = [tmp_path / str(number) for number in range(len(attempts))]
    for place in places:
        for part in ("data", "half"):
            shutil.copytree(well / part, place / part)
        (place / "model").symlink_to(well / "model")
        relocate(well, place)
    work = [(limit, words, str(place)) for (limit, words), place in zip(attempts.values(), places, strict=True)]
    command = [sys.executable, "-c", LIMITED, str(Path(__file__).parents[1]), json.dumps(work)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for file, place, (code, said, changed) in zip(attempts, places, json.loads(done.stdout), strict=True):
        assert code == 2, said
        assert f"tasso: half/{file}: cannot be written: File too large" in said
        assert "the same command goes on" in said
        assert set(changed) <= {"half/log.jsonl"}, "the previous state is unchanged, and no temporary file is left"
        for line in (place / "half/log.jsonl").read_text().splitlines():
            json.loads(line)
        assert carried_out(HALF, place).code == 0
        check_same_end(place / "half", well / "whole")


# A file system that is really full: a small tmpfs in a mount namespace of its own.
TMPFS = """
import json, os, shutil, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", "half"], check=True)
shutil.copytree("../stopped", "half", dirs_exist_ok=True)
filler = os.open("half/filler", os.O_WRONLY | os.O_CREAT)
try:
    while True:
        os.write(filler, bytes(4096))
except OSError:
    os.close(filler)
import torch
torch.set_num_threads(1)
from bad_inputs.case import carried_out
first = carried_out(sys.argv[2:], Path.cwd())
os.unlink("half/filler")
second = carried_out(sys.argv[2:], Path.cwd())
shutil.copytree("half", "../finished")
print(json.dumps([first.code, first.said, first.changed, second.code, second.said]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("unshare") or sys.platform != "linux", reason="needs Linux's unshare")
def test_a_tmpfs_that_is_full(well: Path, here: Path, tmp_path: Path) -> None:
    place = here / "inside"
    place.mkdir()
    for part in ("model", "data"):
        (here / part).rename(place / part)
    (here / "half").rename(here / "stopped")
    config = here / "stopped/config.yaml"
    config.write_text(config.read_text().replace(str(here), str(place)))
    (place / "half").mkdir()
    namespace = ["unshare", "--mount", "--map-root-user"]
    probe = [*namespace, "mount", "-t", "tmpfs", "none", str(place / "half")]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    command = [*namespace, sys.executable, "-c", TMPFS, str(Path(__file__).parents[1]), *HALF]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code, said, changed, then, more = json.loads(done.stdout.splitlines()[-1])
    assert code == 2, said
    assert "cannot be written: " in said
    assert "No space left on device" in said
    assert not changed
    assert then == 0, more
    check_same_end(here / "finished", well / "whole")


def test_a_file_that_cannot_be_written_is_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_atomically(file, fail)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "before"


def test_a_file_is_as_readable_as_others(tmp_path: Path) -> None:
    def write_for_the_owner(temporary: Path) -> None:  # as safetensors does
        temporary.unlink()
        temporary.touch(mode=0o600)

    (tmp_path / "usual").touch()
    write_atomically(tmp_path / "file", write_for_the_owner)
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


# -- two processes -----------------------------------------------------------------------------------------------

# Prints a line when it has locked the folder, and then waits for the end of its input.
LOCKING = """
import sys
from tasso.training import learner
from tasso.cli import main
def wait(self):
    print("locked", flush=True)
    sys.stdin.read()
    raise KeyboardInterrupt
learner.Learner.run = wait
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_second_process_refuses_and_a_killed_one_leaves_no_lock(well: Path, here: Path) -> None:
    first = subprocess.Popen(
        [sys.executable, "-c", LOCKING, *HALF], cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "locked\n"
        second = carried_out(HALF, here)  # this process is the second
        assert second.code == 2
        assert second.message == "tasso: half: another process is working in this run folder"
        assert not second.changed
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert carried_out(HALF, here).code == 0
    check_same_end(here / "half", well / "whole")


# -- losses and weights that are not finite ----------------------------------------------------------------------


@dataclass
class Fragile(FineTune):
    """Fine-tuning whose loss or weights are NaN from some step of the second task on."""

    loss_at: ClassVar[int | None] = None
    weights_at: ClassVar[int | None] = None

    title: ClassVar[str] = "fragile"

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        terms = super().loss(batch)
        if self.task.index == 1 and self.loss_at is not None and self.steps_done >= self.loss_at:
            terms["made up"] = terms["ce"] * float("nan")
        return terms

    def begin_task(self, task: Any) -> None:
        super().begin_task(task)
        self.steps_done = 0

    def after_step(self, step: int) -> None:
        super().after_step(step)
        self.steps_done = step + 1
        if self.task.index == 1 and self.weights_at is not None and step >= self.weights_at:
            with torch.no_grad():
                next(iter(self.clip.visual.parameters())).view(-1)[0] = float("nan")


@pytest.fixture
def fragile(monkeypatch: pytest.MonkeyPatch) -> type[Fragile]:
    monkeypatch.setitem(METHODS, "fragile", FineTune)  # undone after the test, with what `register` puts there
    register("fragile")(Fragile)
    monkeypatch.setattr(Fragile, "loss_at", None)
    monkeypatch.setattr(Fragile, "weights_at", None)
    return Fragile


def options(well: Path, out: Path) -> dict[str, Any]:
    return {
        "benchmark": "mtil-mini", "data_root": str(well / "data"), "check_counts": False, "sequence": "dtd,eurosat",
        "model": f"local-dir:{well / 'model'}", "batch_size": 4, "lr": 1e-3, "device": "cpu", "method": "fragile",
        "steps": 6, "save_every": 2, "out": str(out),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ({"loss_at": 3}, r"task 'eurosat', step 4: the loss is not finite \(it was at step 2\): made up is nan"),
        ({"weights_at": 3}, r"task 'eurosat', step 4: the weights: tensor '\S+' contains inf or NaN"),
        ({"weights_at": 5}, r"task 'eurosat', step 6: the weights: tensor '\S+' contains inf or NaN"),  # the last step
    ],
)
def test_inf_and_nan_are_never_saved(
    where: dict[str, int], says: str, well: Path, fragile: type[Fragile], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("tasso.training.loop.READ_SECONDS", float("inf"))  # the loss is read at saves only
    learn(from_dict(options(well, tmp_path / "whole")))
    for key, value in where.items():
        monkeypatch.setattr(Fragile, key, value)
    saved_step = 4 if where == {"weights_at": 5} else 2
    out = tmp_path / "run"
    with pytest.raises(RunError, match=says + rf".* The state at step {saved_step} of eurosat is kept in \S+run\. Try"):
        learn(from_dict(options(well, out)))
    state = load_file(out / "state.safetensors")
    assert int(state["step"]) == saved_step
    assert all(bool(torch.isfinite(t).all()) for t in state.values() if t.is_floating_point())
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["01-dtd.safetensors"]
    for key in where:
        monkeypatch.setattr(Fragile, key, None)
    learn(from_dict(options(well, out)))  # resumes from the saved state
    check_same_end(out, tmp_path / "whole")


def test_nan_in_the_state_of_a_method_is_not_saved(tiny_clip: Clip, tmp_path: Path) -> None:
    state = nn.ParameterDict({"experts": nn.Parameter(torch.tensor([1.0, torch.nan]))})
    method = SimpleNamespace(name="x", towers="none", state=state)
    with pytest.raises(ModelError, match="the weights: tensor 'method/experts' contains inf or NaN"):
        save_checkpoint(tiny_clip, cast(Any, method), RunFolder(tmp_path), 0, "dtd", {})
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_far_too_large_learning_rate_ends_with_a_message(well: Path, tmp_path: Path) -> None:
    for part in ("model", "data"):
        shutil.copytree(well / part, tmp_path / part)
    outcome = carried_out((*world.RUN, "--lr", "1e30", "--steps", "9", "--save-every", "1"), tmp_path)
    assert outcome.code == 2
    assert "task 'dtd', step" in outcome.message
    assert "Try a smaller --lr with another --out" in outcome.message
    assert not list((tmp_path / "out/checkpoints").iterdir())


# -- the page ----------------------------------------------------------------------------------------------------


def test_every_test_that_the_page_names_exists() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (root / "docs/design.md").read_text(encoding="utf-8"))
    assert len(named) > 10
    for file, name in named:
        assert f"def {name or 'test_'}" in (root / file).read_text(encoding="utf-8"), f"{file}::{name}"


# -- exit codes --------------------------------------------------------------------------------------------------


def test_debug_shows_where_an_error_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["metrics", "nowhere.json", "--debug"], ["--debug", "metrics", "nowhere.json"]):
        with pytest.raises(SystemExit) as stop:
            main(args)
        assert stop.value.code == 2
        said = capsys.readouterr().err
        assert "Traceback" in said
        assert said.strip().endswith("tasso: nowhere.json: no such file")


def test_a_bug_in_tasso_is_reported_as_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.evaluation.metrics.metrics_of_file", None)
    with pytest.raises(SystemExit) as stop:
        main(["metrics", "any.json"])
    assert stop.value.code == 70
    said = capsys.readouterr().err
    what = "TypeError: 'NoneType' object is not callable"
    assert said.startswith(f"tasso: {what}. This is a fault in tasso; --debug shows where it happened")
    assert "Traceback" not in said


def test_an_error_in_code_of_the_user_is_theirs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is raised within a library that this code calls."""

    def of_the_user(path: Path) -> object:
        return json.loads("{")

    monkeypatch.setattr("tasso.evaluation.metrics.metrics_of_file", of_the_user)
    with pytest.raises(SystemExit) as stop:
        main(["metrics", "any.json"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    line = of_the_user.__code__.co_firstlineno + 1
    assert said.startswith(f"tasso: {__file__}, line {line}: JSONDecodeError: ")
    assert said.strip().endswith("That file is not part of tasso; --debug shows how it was called")


def test_out_of_memory_is_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.evaluation.metrics.metrics_of_file", lambda path: torch.empty(2**60))
    with pytest.raises(SystemExit) as stop:
        main(["metrics", "any.json"])
    assert stop.value.code == 2
    assert f"out of memory. {LESS_MEMORY}" in capsys.readouterr().err


def test_a_closed_pipe_gives_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text('{"zero_shot": [1], "matrix": [[2]]}')
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "tasso", "metrics", str(tmp_path / "m.json")]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert "Traceback" not in done.stderr
    assert done.returncode == 141
