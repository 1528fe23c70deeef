"""Learns a sequence: train, evaluate on every task, save, go on. Resumes where it stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from tasso.config import Protocol, RunConfig, from_dict, read_templates, unwrap
from tasso.data import BENCHMARKS, ImageSet, Task, TaskSequence, load_sequence
from tasso.data.images import Pixels, Stream, load_pixels, open_packs, thread_pool
from tasso.distributed import SINGLE_PROCESS, Distributed, check_divisible, init_distributed
from tasso.errors import ConfigError, ModelError, RunError
from tasso.evaluation.accuracy import Rows, accuracy_rows
from tasso.evaluation.alignment import BINS, RANGE
from tasso.evaluation.metrics import metrics
from tasso.methods import Method, RunInfo, TaskInfo, build_method
from tasso.models.class_overlap import warn_of_similar_classes
from tasso.models.clip import Clip, check_finite, load_clip
from tasso.models.inference import Inference
from tasso.progress import progress
from tasso.task_specs import absolute, absolute_path
from tasso.training.engine import Plan, Training, choose_device, choose_precision, peak_memory, planned_steps
from tasso.training.run_folder import RESULTS_VERSION, RunFolder, check_data, identity, same_places
from tasso.training.trackers import Tracking, check_installed, open_tracking

log = logging.getLogger("tasso")
T = TypeVar("T")

WEIGHTS = "the weights"  # in messages
METHOD_PREFIX = "method/"  # of a method's own tensors in a checkpoint; all others are the model's
NOTE_SECONDS = 0.5  # reading a loss waits for the device, so it is done this often at most
LOG_STEPS = 50
ASK_STEPS = 10
# Compiling ViT-B/16 takes about a minute and saves a third of a step of 50 ms; small models gain nothing.
LARGE_TOWER, MANY_STEPS = 50_000_000, 5000


class Stopped(KeyboardInterrupt):
    """The run was asked to stop, and its state is saved."""


def resolve(config: RunConfig) -> tuple[RunConfig, Method]:
    """The configuration with nothing left open, and its method."""
    method = build_method(config.method, config.protocol)
    method.resolve_auto()
    if method.whole_batch and config.accumulate > 1:
        raise ConfigError(
            f"accumulate: must be 1 with {method.name}, which compares the images of a batch with each other"
        )
    precision = choose_precision(config.precision, choose_device(config.device))
    return dataclasses.replace(
        config.resolved(method.run_defaults),
        method=method.hyper_parameters(),
        tasks=absolute(config.tasks) if config.tasks else None,
        reference=_reference(config.reference),
        label=label_of(config, method),
        precision="bfloat16" if precision == torch.bfloat16 else "float32",
    ), method


def _reference(reference: str | None) -> str | None:
    """A folder by its full path, as own tasks have; names of benchmarks as they are."""
    return reference if reference is None or reference in BENCHMARKS else absolute_path(reference)


def label_of(config: RunConfig, method: Method) -> str:
    """The name in tables. What stands in for a part of the method is told there, whatever the user calls it."""
    label = config.label or default_label(method, config.protocol)
    return label if method.stand_in in label else f"{label}, {method.stand_in}"


def default_label(method: Method, protocol: Protocol) -> str:
    """The method's title with what differs from its defaults, so that tables do not mix up variants."""
    default = build_method({"name": method.name}, protocol)
    default.resolve_auto()
    usual = default.hyper_parameters()
    now = {key: value for key, value in method.hyper_parameters().items() if value != usual[key]}
    # A path says where something lies, not what it is.
    changed = [f"{key} {value}" for key, value in now.items() if not (isinstance(value, str) and "/" in value)]
    if protocol != "code":
        changed.append(f"protocol {protocol}")
    return method.title + (f" ({', '.join(changed)})" if changed else "")


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
        wants_reference = any(wanted.name == "reference" for wanted in method.wants())
        self.sequence = sequence or load_sequence(config, with_reference=wants_reference)
        self.contents = self.sequence.contents()
        if not config.overwrite and (before := folder.read_results()):
            check_data(before, self.contents, folder.path)
        self.clip = clip or load_clip(config.model, config.pretrained)
        self.clip.to(self.device, choose_precision(config.precision, self.device))
        self.clip.distributed = distributed
        self.clip.compiled = self._pays_to_compile() if config.compile == "auto" else config.compile == "on"
        self.pool = thread_pool(config.workers)
        self.packs = packs = open_packs(config, self.pool, self.clip.preprocess)
        if packs:
            self.sequence = self._first_alone(lambda: packs.packed(self.sequence))
        self._loaded: dict[str, Pixels] = {}
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
            reference=(lambda: self._kept(reference, "reference")) if reference else None,
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
            self._add_zero_shot(results, rows)
            self.folder.write_results(results)
            self.tracking.row(self.sequence.names, rows.settings(), 0)
        for index in range(len(results["mtil"]["matrix"]), len(tasks)):
            if self._is_out_of_reach(results, index):
                self._add_row(results, *earlier_row(results, index, self.sequence.names))
                self.folder.write_results(results)
                continue
            about = self._learn_task(index)
            started = time.perf_counter()
            rows = self._evaluate(f"after {tasks[index].name}", with_alignment=index == len(tasks) - 1)
            about["evaluation_seconds"] = round(time.perf_counter() - started, 3)
            self._add_row(results, rows, about)
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
            return restore(self.clip, self.method, self.folder, index, task.name)
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
            save(self.clip, self.method, self.folder, index, task.name, about)
        self.distributed.barrier()  # the next task begins with reading it
        self.method.leave_task()
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
            restore(self.clip, self.method, self.folder, index - 1, self.sequence.tasks[index - 1].name)
        torch.manual_seed(self.config.seed * 1000 + index)
        plan, train = self._plan(task), self._pixels(task.train, f"{task.name} train")
        info = TaskInfo(
            index, task.name, task.class_names, task.prompts(self.templates), self.config.seed, plan.steps,
            train, self._pixels, self.sequence.tasks[: index + 1],
        )  # fmt: skip
        self.method.begin_task(info)
        streams = self._streams(index, task, train, self._first_alone(lambda: self.method.extra_images(info)))
        # Once more: making images may have taken random numbers, and a resumed run does not make them again.
        torch.manual_seed(self.config.seed * 1000 + index)
        training = Training(self.clip, self.method, streams, plan)
        everything = {name: p for group in training.groups for name, p in group.parameters.items()}
        self.distributed.check_equal(everything, f"task {task.name!r}")
        return training

    def _first_alone(self, make: Callable[[], T]) -> T:
        """The first process makes files that the others then find."""
        if not self.distributed.is_main:
            self.distributed.barrier()
        made = make()
        if self.distributed.is_main:
            self.distributed.barrier()
        return made

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
        plan, per_step = training.plan, self._images_per_step(training)
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
        return Plan(steps, unwrap(c.lr), unwrap(c.weight_decay), c.betas, c.warmup, c.accumulate, c.cuda_graphs)

    def _steps_before(self, index: int) -> int:
        """Steps of all tasks before this one: trackers count on from task to task."""
        return sum(self._plan(task).steps for task in self.sequence.tasks[:index])

    def _streams(self, index: int, task: Task, train: Pixels, own: Mapping[str, ImageSet]) -> dict[str, Stream]:
        """The task's images and those the method wants to see in each step; `own` are sets that it brings itself."""
        c, seed = self.config, (self.config.seed, index)
        streams = {
            "task": Stream(
                "task", train, task.train.labels, c.batch_size, seed, self.device, distributed=self.distributed
            )
        }
        for name, view in ((wanted.name, wanted.view) for wanted in self.method.wants() if wanted.each_step):
            if name == "current":
                images, pixels = task.train, train
            elif name == "reference":
                images = unwrap(self.sequence.reference)
                pixels = self._kept(images, "reference")
            elif name in own:
                images, pixels = own[name], self._pixels(own[name], f"{task.name} {name}")
            else:  # its own to leave out: a memory is empty in the first task
                continue
            streams[name] = Stream(
                name, pixels, images.labels, c.reference_batch_size, seed, self.device, view, self.distributed
            )
        return streams

    def _images_per_step(self, training: Training) -> int:
        return sum(stream.batch_size for stream in training.streams.values())

    def _pixels(self, images: ImageSet, what: str) -> Pixels:
        with progress(f"reading {what}", len(images)) as advance:
            return load_pixels(
                images,
                self.clip.preprocess,
                self.device,
                self.pool,
                self.config.cache_gib,
                lambda n: advance(n, ""),
                self.packs,
            )

    def _kept(self, images: ImageSet, what: str) -> Pixels:
        """Images that are needed again and again are read once."""
        if what not in self._loaded:
            self._loaded[what] = self._pixels(images, what)
        return self._loaded[what]

    # -- evaluation and results ------------------------------------------------------------------------------

    def _evaluate(self, when: str, *, with_alignment: bool = False) -> Rows:
        tasks = self.sequence.tasks
        pixels = [self._kept(task.test, f"{task.name} test") for task in tasks]
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
        c, tasks = self.config, self.sequence.tasks
        self.folder.log("started", method=self.method.name, tasks=self.sequence.names)
        return {
            "version": RESULTS_VERSION,
            "finished": False,
            "method": self.method.name,
            "label": c.label,
            "seed": c.seed,
            "model": str(self.clip.spec),
            "benchmark": c.benchmark,
            "sequence": c.sequence,
            "protocol": c.protocol,
            "tasks": self.sequence.names,
            "mtil": {"zero_shot": [], "matrix": [], "metrics": None},
            "mcil": {"zero_shot": [], "matrix": [], "metrics": None},
            "alignment": {"bins": BINS, "range": list(RANGE), "zero_shot": None, "last": None},
            "per_task": [],
            "classes": {task.name: len(task.class_names) for task in tasks},
            "class_names": {task.name: list(task.class_names) for task in tasks},
            "templates": {task.name: list(task.templates) for task in tasks if task.templates},
            "data": self.contents,
            "parameters": self.clip.count_parameters(),
        }

    def _add_zero_shot(self, results: dict[str, Any], rows: Rows) -> None:
        for setting, row in rows.settings().items():
            results[setting]["zero_shot"] = row
        results["alignment"]["zero_shot"] = rows.alignment

    def _add_row(self, results: dict[str, Any], rows: Rows, about: dict[str, Any]) -> None:
        for setting, row in rows.settings().items():
            part = results[setting]
            part["matrix"].append(row)
            if len(part["matrix"]) == len(self.sequence.tasks):
                part["metrics"] = metrics(part["zero_shot"], part["matrix"])
                results["finished"] = True
        if results["finished"] and "alignment" in results:  # a run begun by an earlier version has no such key
            results["alignment"]["last"] = rows.alignment
        results["per_task"].append(about)

    def _measured(self, training: Training, about: dict[str, Any], index: int) -> dict[str, Any]:
        seconds = max(about["seconds"], 1e-9)
        return {
            "index": index,
            "steps": training.plan.steps,
            "seconds": round(seconds, 3),
            "images_per_second": round(training.plan.steps * self._images_per_step(training) / seconds, 1),
            "peak_memory_bytes": peak_memory(self.device),
            "trainable_parameters": training.trainable_parameters,
        }


def earlier_row(results: Mapping[str, Any], index: int, tasks: Sequence[str]) -> tuple[Rows, dict[str, Any]]:
    """A row of the run that this one extends, where its model is gone, and what was measured then.

    MTIL scores a task against its own classes, so what was measured still holds; nothing is known of the new tasks. In
    MCIL the classes of the new tasks are among the candidates now, so nothing is known at all.
    """
    before = results["extends"]
    known = dict(zip(before["tasks"], before["mtil"]["matrix"][index], strict=True))
    rows = Rows([known.get(name) for name in tasks], [None for _ in tasks])
    return rows, dict(before["per_task"][index])


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and a polite kill set, so that a step is finished before its state is saved."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield event
        return

    def ask(number: int, _: object) -> None:
        event.set()
        signal.signal(number, before[signal.Signals(number)])  # who asks twice does not want to wait

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Options that say what is evaluated and how; the others are about learning.
EVALUATION_OPTIONS = frozenset({
    "benchmark", "tasks", "data_root", "sequence", "limit_tasks", "test_per_class", "test_share", "split_seed",
    "check_counts", "model", "pretrained", "template", "protocol", "device", "precision", "eval_batch_size", "workers",
    "cache_gib", "pack_dir", "pack_size",
})  # fmt: skip


def evaluation_config(given: Mapping[str, Any], run: Path | None, where: str) -> RunConfig:
    """Options of an evaluation. With a run, what is not given is as it was in that run, but for the machine."""
    if unknown := sorted(set(given) - EVALUATION_OPTIONS):
        raise ConfigError(f"{where}: {unknown[0]!r} is not an option of an evaluation")
    base = RunFolder(run).read_config().to_dict() if run else {}
    kept = {k: v for k, v in base.items() if k in EVALUATION_OPTIONS - {"device", "precision"}}
    if given.keys() & {"benchmark", "tasks"} and base.get("tasks"):  # other tasks than the run's own
        kept = {k: v for k, v in kept.items() if k not in ("benchmark", "tasks", "sequence", "limit_tasks")}
    return from_dict({**kept, **given}, where)


def evaluate(config: RunConfig, run: Path | None = None, after: str | None = None) -> dict[str, Any]:
    """Zero-shot accuracy of a model on a benchmark, or that of a run's checkpoint, in both settings.

    Args:
        run: evaluate this run's latest checkpoint.
        after: or the one after this task of the run (its name or its number, from 1).
    """
    config, _ = resolve(config)
    clip = load_clip(config.model, config.pretrained)
    evaluator = Evaluator(config, clip)
    checkpoint, inference = load_checkpoint(clip, RunFolder(run), after) if run else (None, Inference(clip))
    rows = evaluator.rows(inference)
    return {
        "model": str(clip.spec),
        "checkpoint": checkpoint,
        "benchmark": config.benchmark,
        "tasks": evaluator.sequence.names,
        "mtil": rows.mtil,
        "mcil": rows.mcil,
    }


class Evaluator:
    """The test images of a benchmark, read once, for any number of models of one kind."""

    def __init__(self, config: RunConfig, clip: Clip) -> None:
        """`clip` is moved to the device of the evaluation, and tells how the models look at images."""
        config, _ = resolve(config)
        self.config, device = config, choose_device(config.device)
        clip.to(device, choose_precision(config.precision, device))
        self.sequence = load_sequence(config, with_reference=False)
        pool = thread_pool(config.workers)
        packs = open_packs(config, pool, clip.preprocess)
        if packs:
            self.sequence = packs.packed(self.sequence, train=False)
        self.pixels = [
            load_pixels(task.test, clip.preprocess, device, pool, config.cache_gib, packs=packs)
            for task in self.sequence.tasks
        ]

    def rows(self, inference: Inference, what: str = "") -> Rows:
        """Accuracy on every task in both settings."""
        with progress(f"testing {what}".rstrip(), sum(map(len, self.pixels))) as advance:
            return accuracy_rows(
                inference, self.sequence.tasks, self.pixels, read_templates(unwrap(self.config.template)),
                self.config.eval_batch_size, lambda n: advance(n, ""),
            )  # fmt: skip


def load_checkpoint(clip: Clip, folder: RunFolder, after: str | None = None) -> tuple[str, Inference]:
    """Put a checkpoint of a run, the newest by default, into the pretrained model.

    Returns the name of the task after which it was saved, and how it compares images with classes.
    """
    results, config = folder.read_results(), folder.read_config()
    learned = results["tasks"][: len(results["per_task"])] if results else []
    if not results or not learned:
        raise RunError(f"{folder.path}: no task has been learned in this run")
    index = len(learned) - 1 if after is None else _find_task(after, learned, folder)
    if not folder.has_checkpoint(index, learned[index]):
        file = folder.checkpoint_file(index, learned[index])
        raise RunError(f"{file} is missing; sweeps remove checkpoints of finished runs (--keep-checkpoints)")
    method = build_method(config.method, config.protocol)
    names = results.get("class_names", {})
    if unnamed := [name for name in results["tasks"] if name not in names]:
        raise RunError(f"{folder.results_file}: class_names: nothing about task {unnamed[0]!r}")
    method.attach(clip)
    restore(clip, method, folder, index, learned[index])
    return str(learned[index]), method.inference([names[name] for name in results["tasks"]])


def _find_task(after: str, learned: Sequence[str], folder: RunFolder) -> int:
    if after in learned:
        return learned.index(after)
    if after.isdecimal() and 1 <= int(after) <= len(learned):
        return int(after) - 1
    raise ConfigError(f"after: {folder.path} has learned no task {after!r}. Learned: {', '.join(learned)}")


def save(clip: Clip, method: Method, folder: RunFolder, index: int, name: str, about: Mapping[str, Any]) -> None:
    """Model and method as they are after task `index`, for `restore`. Raises a ModelError if they are no numbers."""
    lasting = {f"{METHOD_PREFIX}{key}": tensor for key, tensor in method.lasting_state().items()}
    tensors = clip.state(method.towers) | lasting
    check_finite(tensors, WEIGHTS)
    folder.write_checkpoint(index, name, tensors, {**about, "task": name, "method": method.name})


def restore(clip: Clip, method: Method, folder: RunFolder, index: int, name: str) -> dict[str, Any]:
    """Model and method as task `index` left them; returns what was measured then."""
    file = folder.checkpoint_file(index, name)
    loaded = folder.read_checkpoint(index, name)
    if loaded is None:
        raise RunError(f"{file} is missing, so the run cannot go on; use --overwrite to start afresh")
    tensors, about = loaded
    # Checkpoints of earlier versions do not tell their method.
    told = {"task": about.get("task", name), "method": about.pop("method", method.name)}
    for key, expected in (("task", name), ("method", method.name)):
        if told[key] != expected:
            raise RunError(
                f"{file}: this is the model of {key} {told[key]!r}, not of {expected!r}; was it copied from elsewhere?"
            )
    lasting = {key.removeprefix(METHOD_PREFIX): t for key, t in tensors.items() if key.startswith(METHOD_PREFIX)}
    clip.load_state({key: t for key, t in tensors.items() if not key.startswith(METHOD_PREFIX)}, str(file))
    if missing := [key for key in clip.state(method.towers) if key not in tensors]:
        raise RunError(f"{file}: incomplete, {missing[0]!r} is missing; use --overwrite to start afresh")
    method.load_lasting_state(lasting, str(file))
    return about
