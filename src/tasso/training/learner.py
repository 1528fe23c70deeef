"""Learns a sequence: train, evaluate on every task, save, go on. Resumes where it stopped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from tasso.config import RunConfig, read_templates, unwrap
from tasso.data import Task, TaskSequence, load_sequence
from tasso.distributed import SINGLE_PROCESS, Distributed, check_divisible, init_distributed
from tasso.errors import ConfigError, ModelError, RunError
from tasso.evaluation.accuracy import Rows, accuracy_rows
from tasso.methods import Method, RunInfo, TaskInfo
from tasso.models.class_overlap import warn_of_similar_classes
from tasso.models.clip import Clip, check_finite
from tasso.models.loading import load_clip
from tasso.progress import progress
from tasso.training.checkpoints import WEIGHTS, restore_checkpoint, save_checkpoint
from tasso.training.engine import Plan, Training, choose_device, choose_precision, peak_memory, planned_steps
from tasso.training.resolve import resolve
from tasso.training.results import add_row, add_zero_shot, earlier_row, new_results
from tasso.training.run_data import RunData
from tasso.training.run_folder import RunFolder, check_data, identity, same_places
from tasso.training.stopping import Stopped, stop_signals
from tasso.training.trackers import Tracking, check_installed, open_tracking

log = logging.getLogger("tasso")
T = TypeVar("T")

NOTE_SECONDS = 0.5  # reading a loss waits for the device, so it is done this often at most
LOG_STEPS = 50
ASK_STEPS = 10
# Compiling ViT-B/16 takes about a minute and saves a third of a step of 50 ms; small models gain nothing.
LARGE_TOWER, MANY_STEPS = 50_000_000, 5000


def learn(config: RunConfig) -> dict[str, Any]:
    """Learn a sequence and return the results (the content of results.json).

    A finished run is not repeated, a stopped one goes on. Everything that can be checked is checked before the run
    folder is made.
    """
    return learn_resolved(*resolve(config))


def learn_resolved(
    config: RunConfig,
    method: Method,
    load: Callable[[], TaskSequence] | None = None,
    begin: Callable[[Learner], None] = lambda learner: None,
    repeated_by: str = "--overwrite",
) -> dict[str, Any]:
    """As `learn`.

    Args:
        load: reads the data and checks them; by default what the configuration names.
        begin: is called when the run folder is open and before anything is learned.
        repeated_by: the option with which a finished run is learned once more, for the message.
    """
    distributed = init_distributed(choose_device(config.device))
    if not distributed.is_main:
        log.setLevel(logging.WARNING)  # what there is to say is said once
    folder = RunFolder(config.out, writes=distributed.is_main)
    if not config.overwrite and (results := finished(folder, config)):
        log.info("%s is finished already; %s repeats it", config.out, repeated_by)
        return results
    check_installed(config.track)
    folder.check_usable(config)
    learner = Learner(config, method, folder, load() if load else None, distributed=distributed)
    with folder.opened(config):
        begin(learner)
        distributed.barrier()  # the folder is there now, and what was in it before is gone if it has to be
        results = learner.run()
        distributed.barrier()  # who leaves early cuts off the others
        return results


def finished(folder: RunFolder, config: RunConfig) -> dict[str, Any] | None:
    """Results of a finished run of this very configuration, or None."""
    if not folder.config_file.exists():
        return None
    folder.check_same(config)
    if not same_places(folder.read_config(), config):
        return None  # whether it is the same data must be looked at
    results = folder.read_results()
    return results if results and results["finished"] else None


class Learner:
    """One run: its data, its model, its method and its folder."""

    def __init__(
        self,
        config: RunConfig,
        method: Method,
        folder: RunFolder,
        sequence: TaskSequence | None = None,
        clip: Clip | None = None,
        distributed: Distributed = SINGLE_PROCESS,
    ) -> None:
        """Tasks and pretrained model are those of the configuration, unless they are given."""
        self.distributed = distributed
        check_divisible({key: getattr(config, key) for key in ("batch_size", "reference_batch_size")}, distributed)
        if distributed.world_size > 1 and config.accumulate > 1:
            raise ConfigError("accumulate: must be 1 with several processes, which split every batch already")
        self.config, self.method, self.folder = config, method, folder
        self.templates = read_templates(unwrap(config.template))
        self.device = choose_device(config.device)
        if self.device.type == "cuda" and self.device.index is not None:
            torch.cuda.set_device(self.device)  # streams and recordings are made on the current one
        wants_reference = any(request.name == "reference" for request in method.image_requests())
        self.sequence = sequence or load_sequence(config, with_reference=wants_reference)
        self.contents = self.sequence.contents()
        if not config.overwrite and (before := folder.read_results()):
            check_data(before, self.contents, folder.path)
        self.clip = clip or load_clip(config.model, config.pretrained)
        self.clip.to(self.device, choose_precision(config.precision, self.device))
        self.clip.distributed = distributed
        self.clip.compiled = self._pays_to_compile() if config.compile == "auto" else config.compile == "on"
        self.data = RunData(config, self.sequence, self.clip.preprocess, self.device, distributed)
        self.sequence = self.data.sequence
        self.tracking = Tracking(None, None)  # until the run folder is there
        self._last_good = "What was saved before"
        if config.tasks:
            warn_of_similar_classes(self.clip, self.sequence.tasks, self.templates)
        method.check(self.clip)
        method.attach(self.clip)
        method.begin_run(self._run_info())

    def _pays_to_compile(self) -> bool:
        large = self.clip.count_parameters()["image_tower"] >= LARGE_TOWER
        steps = sum(self._plan(task).steps for task in self.sequence.tasks)
        return self.device.type == "cuda" and large and steps >= MANY_STEPS

    def _run_info(self) -> RunInfo:
        sequence, reference = self.sequence, self.sequence.reference
        return RunInfo(
            reference=(lambda: self.data.cached(reference, "reference")) if reference else None,
            reference_names=sequence.reference_names,
            reference_texts=sequence.reference_texts,
            templates=self.templates,
            tasks=sequence.tasks,
            seed=self.config.seed,
            folder=self.folder.method_files,
        )

    # -- the straight line -----------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Everything from the first evaluation to the last."""
        files, writes = self.folder.tracking_files, self.folder.writes
        self.tracking = open_tracking(self.config, files, identity(self.config), writes=writes)
        finished = False
        try:
            results = self._run()
            finished = True
        finally:
            self.tracking.close(finished)
        return results

    def _run(self) -> dict[str, Any]:
        results = self.folder.read_results() or self.first_results()
        tasks = self.sequence.tasks
        self._tell_what_is_ahead(results)
        if not results["mtil"]["zero_shot"]:
            rows = self._evaluate("zero-shot", with_alignment=True)
            add_zero_shot(results, rows)
            self.folder.write_results(results)
            self.tracking.row(self.sequence.names, rows.settings(), 0)
        for index in range(len(results["mtil"]["matrix"]), len(tasks)):
            if self._is_out_of_reach(results, index):
                add_row(results, *earlier_row(results, index, self.sequence.names))
                self.folder.write_results(results)
                continue
            about = self._learn_task(index)
            started = time.perf_counter()
            rows = self._evaluate(f"after {tasks[index].name}", with_alignment=index == len(tasks) - 1)
            about["evaluation_seconds"] = round(time.perf_counter() - started, 3)
            add_row(results, rows, about)
            self.folder.write_results(results)
            self.folder.drop_state()
            self.folder.log("evaluated", task=tasks[index].name, mtil=rows.mtil, mcil=rows.mcil)
            self.tracking.row(self.sequence.names, rows.settings(), self._steps_before(index + 1))
            if results["finished"]:
                summary = {setting: results[setting]["metrics"] for setting in rows.settings()}
                self.tracking.metrics(summary, self._steps_before(index + 1))
        return results

    def _tell_what_is_ahead(self, results: Mapping[str, Any]) -> None:
        """Steps of the tasks that are still to be learned; those of which a model is there are only tested."""
        measured = len(results["mtil"]["matrix"])
        ahead = [
            (index, task)
            for index, task in enumerate(self.sequence.tasks)
            if index >= measured and not self._is_out_of_reach(results, index)
        ]
        there = [task.name for index, task in ahead if self.folder.has_checkpoint(index, task.name)]
        steps = [f"{task.name} {self._plan(task).steps}" for _, task in ahead if task.name not in there]
        if steps:
            what = f"{self.config.label}, {self.clip.spec} on {self.device}; steps: {', '.join(steps)}"
            log.info("%s%s", what, f"; learned already, tested again: {', '.join(there)}" if there else "")

    def _is_out_of_reach(self, results: Mapping[str, Any], index: int) -> bool:
        """Was this task learned by the run that this one extends, and its model removed since?"""
        learned = results["extends"]["tasks"] if results.get("extends") else []
        there = self.folder.has_checkpoint(index, self.sequence.tasks[index].name)
        return index < len(learned) and not there

    # -- one task --------------------------------------------------------------------------------------------

    def _learn_task(self, index: int) -> dict[str, Any]:
        """Train on task `index` from the model before it; returns what was measured. The model is left trained."""
        task = self.sequence.tasks[index]
        if self.folder.has_checkpoint(index, task.name):  # stopped between saving and evaluating
            return restore_checkpoint(self.clip, self.method, self.folder, index, task.name)
        started = time.perf_counter()
        training = self.begin(index)
        about = self._resume(training, index)
        about["preparing_seconds"] = round(time.perf_counter() - started, 3)
        try:
            with stop_signals() as asked_to_stop:
                self._train(training, task, index, about, asked_to_stop)
        finally:
            training.close()
        self.method.end_task()
        if self.method.towers == "both":
            self.clip.clear_text_cache()
        about |= self._measured(training, about, index)
        with self._only_if_finite(task, training.step):
            save_checkpoint(self.clip, self.method, self.folder, index, task.name, about)
        self.distributed.barrier()  # the next task begins with reading it
        self.method.release_images()
        self.folder.log("learned", **about)
        if asked_to_stop.is_set():
            raise self._stopped(f"after the last step of {task.name}")
        return about

    def _stopped(self, where: str) -> Stopped:
        command = "The same command" + (" without --overwrite" if self.config.overwrite else "")
        return Stopped(f"stopped {where}. {command} goes on from there")

    def begin(self, index: int) -> Training:
        """Task `index` ready for its first step, from the model as the task before left it."""
        task = self.sequence.tasks[index]
        if index:
            restore_checkpoint(self.clip, self.method, self.folder, index - 1, self.sequence.tasks[index - 1].name)
        torch.manual_seed(self.config.seed * 1000 + index)
        plan, train = self._plan(task), self.data.pixels(task.train, f"{task.name} train")
        info = TaskInfo(
            index, task.name, task.class_names, task.prompts(self.templates), self.config.seed, plan.steps,
            train, self.data.pixels, self.sequence.tasks[: index + 1],
        )  # fmt: skip
        self.method.begin_task(info)
        streams = self.data.streams(
            index, task, train, self.method, self.distributed.main_first(lambda: self.method.extra_images(info))
        )
        # Once more: making images may have taken random numbers, and a resumed run does not make them again.
        torch.manual_seed(self.config.seed * 1000 + index)
        training = Training(self.clip, self.method, streams, plan)
        everything = {name: p for group in training.groups for name, p in group.parameters.items()}
        self.distributed.check_equal(everything, f"task {task.name!r}")
        return training

    def _resume(self, training: Training, index: int) -> dict[str, Any]:
        """Go on from a saved state, if there is one for this task."""
        fresh = {"task": self.sequence.tasks[index].name, "seconds": 0.0}
        saved = self.folder.read_state(self._state_facts(index))
        self._last_good = f"The model before {fresh['task']}" if index else "The zero-shot row"
        if saved is None:
            return fresh
        training.load_state_dict(saved[0], str(self.folder.state_file))
        self._last_good = f"The state at step {training.step} of {fresh['task']}"
        log.info("resuming %s at step %d", fresh["task"], training.step)
        return {**fresh, "seconds": saved[1]["seconds"]}

    def _train(
        self,
        training: Training,
        task: Task,
        index: int,
        about: dict[str, Any],
        asked_to_stop: threading.Event,
    ) -> None:
        plan, per_step = training.plan, training.images_per_step
        title = f"{index + 1}/{len(self.sequence.tasks)} {task.name}"
        started, already = time.perf_counter(), about["seconds"]
        noted = saved = started
        first, note = training.step, ""
        finite = training.step  # the last one at which the loss was looked at
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        with progress(title, plan.steps, training.step) as advance:
            while training.step < plan.steps:
                terms = training.advance()
                now = time.perf_counter()
                last = training.step == plan.steps
                if now - noted >= NOTE_SECONDS or training.step % LOG_STEPS == 0 or last:
                    values = self._read(terms, task, training.step, finite)
                    finite = training.step
                    now = noted = time.perf_counter()
                    rate = (training.step - first) * per_step / (now - started)
                    note = " ".join(f"{k} {v:.3f}" for k, v in values.items()) + f", {rate:.0f} images/s"
                    if training.step % LOG_STEPS == 0 or last:
                        self.folder.log("step", task=task.name, step=training.step, **values)
                        self.tracking.step(task.name, self._steps_before(index) + training.step, values)
                advance(1, note)
                about["seconds"] = already + now - started
                stops = not last and self._someone_stops(training.step, asked_to_stop)
                if stops or (not last and self._time_to_save(training.step, now - saved)):
                    self._read(terms, task, training.step, finite)  # a bad state must not replace a good one
                    self._save_state(training, index, about)
                    saved, finite = time.perf_counter(), training.step
                if stops:
                    raise self._stopped(f"at step {training.step} of {plan.steps} of {task.name}")
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        about["seconds"] = already + time.perf_counter() - started

    def _read(self, terms: dict[str, Tensor], task: Task, step: int, finite: int) -> dict[str, float]:
        """Losses as numbers; a loss that is not finite ends the run. `finite` is the last step that was read."""
        values = {name: float(term) for name, term in terms.items()}
        if bad := [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]:
            since = f" (it was at step {finite})" if finite else ""
            raise self._diverged(task, step, f"the loss is not finite{since}: {', '.join(bad)}")
        return values

    def _diverged(self, task: Task, step: int, what: str) -> RunError:
        return RunError(
            f"task {task.name!r}, step {step}: {what}. {self._last_good} is kept in {self.folder.path}. "
            "Try a smaller --lr with another --out"
        )

    @contextlib.contextmanager
    def _only_if_finite(self, task: Task, step: int) -> Iterator[None]:
        """Around saving: weights that are no numbers are not saved but end the run."""
        try:
            yield
        except ModelError as error:
            raise self._diverged(task, step, str(error)) from None

    def _someone_stops(self, step: int, asked: threading.Event) -> bool:
        """Asking the others waits for them, so with several processes it is done now and then."""
        if self.distributed.world_size == 1:
            return asked.is_set()
        return step % ASK_STEPS == 0 and self.distributed.any(asked.is_set(), self.device)

    def _time_to_save(self, step: int, seconds: float) -> bool:
        if self.config.save_every:
            return step % self.config.save_every == 0
        return seconds >= 60 * self.config.save_minutes

    def _save_state(self, training: Training, index: int, about: dict[str, Any]) -> None:
        state, task = training.state_dict(), self.sequence.tasks[index]
        with self._only_if_finite(task, training.step):
            check_finite(state, WEIGHTS)
        self.folder.write_state(state, {**self._state_facts(index), "seconds": about["seconds"]})
        self._last_good = f"The state at step {training.step} of {task.name}"

    def _state_facts(self, index: int) -> dict[str, Any]:
        """What a state says about itself, so that no other is taken for it."""
        data = hashlib.sha256(json.dumps(self.contents, sort_keys=True).encode()).hexdigest()[:16]
        return {"index": index, "task": self.sequence.tasks[index].name, "method": self.method.name, "data": data}

    # -- what a task needs -----------------------------------------------------------------------------------

    def _plan(self, task: Task) -> Plan:
        c = self.config
        steps = c.steps or planned_steps(unwrap(c.step_rule), len(task.train), c.batch_size)
        return Plan(
            steps, unwrap(c.lr), unwrap(c.weight_decay), c.betas, c.warmup, c.accumulate, c.cuda_graphs, c.optimizer
        )

    def _steps_before(self, index: int) -> int:
        """Steps of all tasks before this one: trackers count on from task to task."""
        return sum(self._plan(task).steps for task in self.sequence.tasks[:index])

    # -- evaluation and results ------------------------------------------------------------------------------

    def _evaluate(self, when: str, *, with_alignment: bool = False) -> Rows:
        tasks = self.sequence.tasks
        pixels = [self.data.cached(task.test, f"{task.name} test") for task in tasks]
        with progress(f"testing {when}", sum(map(len, pixels))) as advance:
            rows = accuracy_rows(
                self.method.inference([task.class_names for task in tasks]),
                tasks,
                pixels,
                self.templates,
                self.config.eval_batch_size,
                lambda n: advance(n, ""),
                with_alignment=with_alignment,
            )
        measured = zip(self.sequence.names, rows.mtil, strict=True)
        words = ", ".join(f"{name} {value:.1f}" for name, value in measured if value is not None)
        log.info("%s, accuracy (%%), MTIL: %s", when, words)
        return rows

    def first_results(self) -> dict[str, Any]:
        """A results.json in which nothing has been measured yet."""
        self.folder.log("started", method=self.method.name, tasks=self.sequence.names)
        return new_results(self.config, self.method, self.clip, self.sequence)

    def _measured(self, training: Training, about: dict[str, Any], index: int) -> dict[str, Any]:
        seconds = max(about["seconds"], 1e-9)
        return {
            "index": index,
            "steps": training.plan.steps,
            "seconds": round(seconds, 3),
            "images_per_second": round(training.plan.steps * training.images_per_step / seconds, 1),
            "peak_memory_bytes": peak_memory(self.device),
            "trainable_parameters": training.trainable_parameters,
        }
