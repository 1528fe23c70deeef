"""Imported by every Python process of a test that puts this folder on PYTHONPATH: sends signals at an exact step.

TASSO_TEST_DEATHS names a folder with `plan.json`, a list of {"run": part of a run folder's name, "step": counted from
its start in this process, "how": a key of HOW, "times": how often}. TASSO_TEST_FEW is the number of drawn training
images per class.
"""

import importlib.abc
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

DEATHS = os.environ.get("TASSO_TEST_DEATHS")
FEW = os.environ.get("TASSO_TEST_FEW")
HOW = {
    "worker": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "politely": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "everyone": lambda: os.killpg(0, signal.SIGKILL),
    "sweep": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "driver": lambda: os.kill(int(os.environ["TASSO_TEST_DRIVER"]), signal.SIGINT),
    "ctrl-c": lambda: os.killpg(0, signal.SIGINT),
}


def due(folder, run, step):
    try:
        plans = json.loads((folder / "plan.json").read_text())
    except FileNotFoundError:
        return None
    for plan in plans:
        if plan["run"] not in run or step != plan["step"]:
            continue
        for number in range(plan["times"]):
            try:
                (folder / f"{plan['run']}{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return HOW[plan["how"]]
    return None


def patch(learner):
    advance, begin, steps = learner.Training.advance, learner.Learner.run, {"run": "", "step": 0}

    def counted_run(self):
        steps.update(run=str(self.config.out), step=0)
        return begin(self)

    def counted_advance(self):
        result = advance(self)
        steps["step"] += 1
        if act := due(Path(DEATHS), steps["run"], steps["step"]):
            act()
        return result

    learner.Training.advance, learner.Learner.run = counted_advance, counted_run


class Patching(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "tasso.training.learner":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec


if DEATHS:
    sys.meta_path.insert(0, Patching())
if FEW:
    from tasso.data import drawn

    drawn.PER_CLASS["train"] = int(FEW)
if DEATHS or FEW:
    # Optional for open_clip, and importing it takes a quarter of the time of these processes.
    sys.modules["transformers"] = None
