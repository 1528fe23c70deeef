"""Learns a sequence of tasks: train, save a checkpoint, evaluate on every task, go on. Resumes where it stopped."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from tasso.config import AUTO, RunConfig, read_templates, unwrap
from tasso.data import Task, TaskSequence, load_sequence
from tasso.data.damaged import advice_on_unreadable
from tasso.data.images import Pixels
from tasso.distributed import SINGLE_PROCESS, Distributed, check_divisible, init_distributed
from tasso.errors import ConfigError, DataError
from tasso.evaluation.accuracy import AccuracyRows, accuracy_rows
from tasso.kernels import has_kernels, import_meanwhile
from tasso.methods import Method, RunInfo, TaskInfo
from tasso.methods.defaults import rate_in_words
from tasso.models.class_overlap import warn_of_similar_classes
from tasso.models.clip import Clip
from tasso.models.inference import Embedded, Inference
from tasso.models.loading import load_clip
from tasso.models.towers import is_plain_vit, prepare
from tasso.progress import progress
from tasso.training.checkpoints import head_tensors, restore_checkpoint, save_checkpoint
from tasso.training.engine import (
    Training,
    choose_device,
    choose_precision,
    keep_freed_memory,
    peak_memory,
    planned_steps,
)
from tasso.training.identity import identity, portable
from tasso.training.loop import TaskLoop
from tasso.training.memory import tell_memory
from tasso.training.resolve import resolve
from tasso.training.results import add_row, add_zero_shot, check_complete, earlier_row, new_results, unknown_rows
from tasso.training.run_data import ADVICE, EXTEND_ADVICE, RunData, check_data, check_weights, tell_replaced
from tasso.training.run_folder import RunFolder, same_paths
from tasso.training.stopping import stop_signals
from tasso.training.task_head import Before, TaskHead
from tasso.training.trackers import Tracking, check_installed, open_tracking

log = logging.getLogger("tasso")

# Compiling a tower as large as ViT-B/16 takes about a minute and saves a third of a step of 50 ms; small ones gain
# nothing.
COMPILE_PARAMETERS, COMPILE_STEPS = 50_000_000, 5000


def learn(config: RunConfig) -> dict[str, Any]:
    """Learn a sequence; returns the results (the content of results.json).

    A finished run is not repeated, a stopped one goes on. Everything that can be checked is checked before the run
    folder is created.
    """
    resolved, method = resolve(config)

    def begin(learner: Learner) -> None:
        if config.lr == AUTO and method.learns:
            log.info("%s", rate_in_words(resolved, method))
        if config.steps is None and config.step_rule is None and resolved.step_rule == "quick":
            log.info("few steps, since this is a CPU; --steps N takes more or fewer, --step-rule code as many as a GPU")

    return learn_resolved(resolved, method, begin=begin)


def learn_resolved(
    config: RunConfig,
    method: Method,
    extends: tuple[Mapping[str, Any], Path] | None = None,
    begin: Callable[[Learner], None] = lambda learner: None,
    rerun_option: str = "--overwrite",
) -> dict[str, Any]:
    """As `learn`, for a resolved configuration.

    Args:
        extends: results and folder of the run that this one extends.
        begin: called when the run folder is open, before anything is learned.
        rerun_option: the option that repeats a finished run, for the message.
    """
    distributed = init_distributed(choose_device(config.device))
    if not distributed.is_main:
        log.setLevel(logging.WARNING)
    folder = RunFolder(config.out, writes=distributed.is_main)
    if not config.overwrite and (results := finished_results(folder, config)):
        log.info("%s is finished already; %s repeats it", config.out, rerun_option)
        return results
    check_installed(config.track)
    folder.check_usable(config)
    with advice_on_unreadable(config, folder.config_file):
        learner = Learner(config, method, folder, distributed=distributed, extends=extends)
        with closing(learner.data.cache), folder.opened(config):
            begin(learner)
            distributed.barrier()  # the folder exists, and with --overwrite its old content is removed
            results = learner.run()
            distributed.barrier()  # a rank that exits early would abort the others
            return results


def finished_results(folder: RunFolder, config: RunConfig) -> dict[str, Any] | None:
    """Results of a finished run of this configuration, or None.

    Own tasks are read, but not learned: their folders may have new images since.
    """
    if not folder.config_file.exists():
        return None
    folder.check_same(config)
    if not same_paths(folder.read_config(), config):
        return None  # the data must be compared with those of the run
    results = folder.read_results()
    if not results or not results["finished"]:
        return None
    check_complete(results, folder.results_file)
    if config.tasks and not (config.pack_dir and config.corrupt == "skip"):  # packs decide what is left out
        try:
            sequence = load_sequence(config, with_reference=False)
        except DataError as error:
            log.warning("%s: not compared with the images as they are now: %s", folder.path, error)
        else:
            check_data(results, sequence.contents(), folder.path)
            tell_replaced(results, sequence, folder.path)
    return results


class Learner:
    """One run: its data, model, method and folder."""

    def __init__(
        self,
        config: RunConfig,
        method: Method,
        folder: RunFolder,
        sequence: TaskSequence | None = None,
        clip: Clip | None = None,
        distributed: Distributed = SINGLE_PROCESS,
        extends: tuple[Mapping[str, Any], Path] | None = None,
    ) -> None:
        """Loads the tasks and the pretrained model that the configuration names, unless they are given.

        `extends`: results and folder of the run that this one extends.
        """
        self.clock = time.perf_counter()  # when time was last added to results.json
        check_divisible({key: getattr(config, key) for key in ("batch_size", "reference_batch_size")}, distributed)
        if config.test_share == 1:
            raise ConfigError("test_share: 1 leaves nothing to train on; it is for tasso eval")
        if distributed.world_size > 1 and config.accumulate > 1:
            raise ConfigError("accumulate: must be 1 with several processes, which split every batch already")
        self.config, self.method, self.folder, self.distributed = config, method, folder, distributed
        self.templates = read_templates(unwrap(config.template))
        self.device = choose_device(config.device)
        if self.device.type == "cuda" and self.device.index is not None:
            torch.cuda.set_device(self.device)  # streams and CUDA graphs are created on the current device
        import_meanwhile(self.device)
        keep_freed_memory(self.device)
        needs_reference = any(request.name == "reference" for request in method.image_requests())
        self.sequence = sequence or load_sequence(config, with_reference=needs_reference)
        recorded = [(*extends, EXTEND_ADVICE)] if extends else []
        if not config.overwrite and (results := folder.read_results()):
            check_complete(results, folder.results_file)
            recorded.append((results, folder.path, ADVICE))
        self.clip = clip or load_clip(config.model, config.pretrained)
        if distributed.world_size > 1 and self.clip.has_batch_norm:
            raise ConfigError(
                f"model: {self.clip.spec} has batch norm, whose statistics would differ between processes; use a "
                "single process"
            )
        self.weights = self.clip.weights_checksum()
        for earlier, path, advice in recorded:
            check_weights(earlier, self.weights, self.clip.spec, path, advice)
        precision, theirs = choose_precision(config.precision, self.device), config.teacher_precision
        in_precision = (precision, None if theirs == "auto" else choose_precision(theirs, self.device))
        self.clip.to(self.clip.device, *in_precision)  # an error if the model cannot
        self.clip.distributed = distributed
        self.clip.compiled = self._pays_to_compile() if config.compile == "auto" else config.compile == "on"
        self.data = RunData(config, self.sequence, self.clip.preprocess, self.device, distributed)
        self.sequence = self.data.sequence  # without images that cannot be read
        self.contents = self.sequence.contents()
        for earlier, path, advice in recorded:
            check_data(earlier, self.contents, path, advice)
            tell_replaced(earlier, self.sequence, path)
        self.told_memory = False
        self.tracking = Tracking(None, None)  # opened by `run`, when the run folder exists
        try:
            if not recorded:  # it begins with an evaluation, whose images are read while the GPU starts
                self.data.read_ahead(*(task.evaluated for task in self.sequence.tasks))
            self._set_up_model()
        except BaseException:
            self.data.cache.close()
            raise

    def _set_up_model(self) -> None:
        """Move it to its device and attach the method."""
        config, method = self.config, self.method
        self.clip.to(self.device)
        if config.tasks:
            warn_of_similar_classes(self.clip, self.sequence.tasks, self.templates, config.merges_names)
        if config.checkpoint_activations:
            self.clip.checkpoint_activations()
        self.clip.tune = config.tune
        self.clip.tuned_parameters(method.towers)  # an error if there are none
        method.check(self.clip)
        if not self.clip.compiled:
            prepare(self.clip.model, method.towers, self.clip.precision)
        method.attach(self.clip)
        method.begin_run(self._run_info())
        self.head = TaskHead.of_run(config, self.clip)
        self.pretrained: dict[str, Embedded] = {}  # test images, as long as the model is the pretrained one
        self.before: Before | None = None  # what the head has seen of the current task before that is learned

    def _pays_to_compile(self) -> bool:
        # With kernels, a step is as fast (ViT-B/16), and there is nothing to wait for. They do nothing for a method's
        # own modules.
        low, trains = self.clip.precision == torch.bfloat16, self.method.towers != "none"
        with_kernels = low and trains and has_kernels(self.device) and is_plain_vit(self.clip.visual)
        if self.device.type != "cuda" or with_kernels:
            return False
        is_large = self.clip.count_parameters()["image_tower"] >= COMPILE_PARAMETERS
        return is_large and self._steps_before(len(self.sequence.tasks)) >= COMPILE_STEPS

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

    # -- the sequence ----------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Everything from the zero-shot evaluation to the last task; returns the results."""
        files, writes = self.folder.tracking_files, self.folder.writes
        self.tracking = open_tracking(self.config, files, portable(identity(self.config)), writes=writes)
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
        self._log_plan(results)
        if not results["mtil"]["zero_shot"]:
            requests = self.method.image_requests()
            wanted = any(request.name == "reference" and request.each_step for request in requests)
            self.data.read_ahead(tasks[0].train, self.sequence.reference if wanted else None)
            rows = self._evaluate("zero-shot", range(len(tasks) + 1), with_alignment=True, kept=self.pretrained)
            add_zero_shot(results, rows)
            self._write(results)
            self.tracking.row(self.sequence.names, rows.settings(), 0)
        if self.head and self.method.learns and self.config.tasks and "frozen" not in results:
            results["frozen"] = self._learn_frozen(self.head).settings()
            self._write(results)
        if self.method.learns:
            self.pretrained.clear()
        for index in range(len(results["mtil"]["matrix"]), len(tasks)):
            if self._parent_checkpoint_missing(results, index):
                add_row(results, *earlier_row(results, index, self.sequence.names))
                self._write(results)
                continue
            metadata = self._learn_task(index)
            last = index == len(tasks) - 1
            if not last and (index + 1) % self.config.evaluate_every:
                self._add_row(results, unknown_rows(results), metadata)
                continue
            started = time.perf_counter()
            kept = None if self.method.learns else self.pretrained
            rows = self._evaluate(f"after {tasks[index].name}", [index + 1], with_alignment=last, kept=kept)
            metadata["evaluation_seconds"] = round(time.perf_counter() - started, 3)
            self._add_row(results, rows, metadata)
            self.folder.log("evaluated", task=tasks[index].name, **rows.settings())
            self.tracking.row(self.sequence.names, rows.settings(), self._steps_before(index + 1))
            if last:
                summary = {setting: results[setting]["metrics"] for setting in rows.settings()}
                self.tracking.metrics(summary, self._steps_before(index + 1))
        return results

    def _add_row(self, results: dict[str, Any], rows: AccuracyRows, metadata: dict[str, Any]) -> None:
        """Write the row after a task; its resume state is of no more use."""
        add_row(results, rows, metadata)
        self._write(results)
        self.folder.drop_state()

    def _write(self, results: dict[str, Any]) -> None:
        """Write results.json with the time that the run has taken, an earlier start's included."""
        now = time.perf_counter()
        results["wall_seconds"] = round(results.get("wall_seconds", 0.0) + now - self.clock, 3)
        self.clock = now
        self.folder.write_results(results)

    def first_results(self) -> dict[str, Any]:
        """A results.json without measurements."""
        self.folder.log("started", method=self.method.name, tasks=self.sequence.names)
        return new_results(self.config, self.method, self.clip, self.sequence, self.weights, self.data.left_out)

    def _log_plan(self, results: Mapping[str, Any]) -> None:
        """Log the steps of the tasks still to be learned, and the learned tasks still to be evaluated."""
        evaluated = len(results["mtil"]["matrix"])
        remaining = [
            (index, task)
            for index, task in enumerate(self.sequence.tasks)
            if index >= evaluated and not self._parent_checkpoint_missing(results, index)
        ]
        learned = [task.name for index, task in remaining if self.folder.has_checkpoint(index, task.name)]
        steps = [f"{task.name} {self._steps(task)}" for _, task in remaining if task.name not in learned]
        if steps:
            plan = f"{self.config.label}, {self.clip.spec} on {self.device}; steps: {', '.join(steps)}"
            log.info("%s%s", plan, f"; learned already, evaluated again: {', '.join(learned)}" if learned else "")

    def _parent_checkpoint_missing(self, results: Mapping[str, Any], index: int) -> bool:
        """True if the run that this one extends learned this task and its checkpoint was removed since."""
        extended = results["extends"]["tasks"] if results.get("extends") else []
        return index < len(extended) and not self.folder.has_checkpoint(index, self.sequence.tasks[index].name)

    # -- one task --------------------------------------------------------------------------------------------

    def _learn_task(self, index: int) -> dict[str, Any]:
        """Train on task `index`, starting from the model before it, and save a checkpoint; returns its metadata."""
        task = self.sequence.tasks[index].name
        if self.folder.has_checkpoint(index, task):  # stopped between saving and evaluating
            return self._restore(index)
        if not self.method.learns:
            return self._learn_head_only(index)
        started = time.perf_counter()
        training = self.begin(index)
        if not self.told_memory:
            tell_memory(training)
            self.told_memory = True
        loop = self.task_loop(training, index)
        loop.resume()
        self.data.read_ahead(*(following.train for following in self.sequence.tasks[index + 1 : index + 2]))
        preparing_seconds = round(time.perf_counter() - started, 3)
        with stop_signals() as stop:
            try:
                loop.run(stop)
            finally:
                training.close()
            self.method.end_task()
            if self.head:
                self._show(self.head, self._inference(), index, trained=True)
            metadata = {"task": task, "preparing_seconds": preparing_seconds, **loop.measurements()}
            with loop.refuse_nonfinite():
                save_checkpoint(self.clip, self.method, self.folder, index, task, metadata, self.head)
            self.distributed.barrier()  # the next task begins by reading the checkpoint
            self.method.release_images()
            self.folder.log("learned", **metadata)
            stops = self.distributed.any(stop.is_set(), self.device)  # all processes stop, or none does
        if stops:
            raise loop.stopped(f"after the last step of {task}")
        return metadata

    def _learn_head_only(self, index: int) -> dict[str, Any]:
        """As `_learn_task`, where nothing is trained."""
        task, started = self.sequence.tasks[index], time.perf_counter()
        if index:
            self._restore(index - 1)
        self.data.cache.begin_phase()
        if self.head:
            self._show(self.head, self._inference(), index, trained=False)
        seconds = round(time.perf_counter() - started, 3)
        metadata = {
            "task": task.name, "index": index, "steps": 0, "seconds": seconds,
            "images_per_second": round(len(task.train) / max(seconds, 1e-3), 1), **peak_memory(self.device),
            "trainable_parameters": 0,
        }  # fmt: skip
        save_checkpoint(self.clip, self.method, self.folder, index, task.name, metadata, self.head)
        self.distributed.barrier()
        self.folder.log("learned", **metadata)
        return metadata

    def begin(self, index: int) -> Training:
        """Prepare task `index` up to its first step, starting from the checkpoint of the task before."""
        task = self.sequence.tasks[index]
        if index:
            self._restore(index - 1)
        torch.manual_seed(self.config.seed * 1000 + index)
        self.data.cache.begin_phase()
        steps, train = self._steps(task), self.data.pixels(task.train, f"{task.name} train")
        if self.head:
            self.before = self.head.before(self._inference(), train, self._reference(self.head))
        info = TaskInfo(
            index, task.name, task.class_names, task.train_prompts(self.templates), self.config.seed, steps,
            train, self.data.pixels, self.sequence.tasks[: index + 1],
        )  # fmt: skip
        self.method.begin_task(info)
        streams = self.data.streams(
            index, task, train, self.method, self.distributed.main_first(lambda: self.method.extra_images(info))
        )
        # Seed again: creating images may have used random numbers, and a resumed run does not create them again.
        torch.manual_seed(self.config.seed * 1000 + index)
        training = Training(self.clip, self.method, streams, self.config, steps)
        trained = {name: p for group in training.groups for name, p in group.parameters.items()}
        self.distributed.check_equal(trained, f"task {task.name!r}")
        return training

    def _restore(self, index: int) -> dict[str, Any]:
        """Load model, method and head as task `index` left them; returns the metadata saved with them."""
        tasks = self.sequence.tasks[: index + 1]
        if self.head:
            self.head.prepare({task.name: task.class_names for task in tasks})
        return restore_checkpoint(self.clip, self.method, self.folder, index, tasks[-1].name, self.head)

    def task_loop(self, training: Training, index: int) -> TaskLoop:
        """The training loop of task `index`."""
        task = self.sequence.tasks[index].name
        data = hashlib.sha256(json.dumps(self.contents, sort_keys=True).encode()).hexdigest()[:16]
        return TaskLoop(
            self.config, self.folder, self.tracking, self.distributed, training, task, index,
            title=f"{index + 1}/{len(self.sequence.tasks)} {task}",
            steps_before=self._steps_before(index),
            state_metadata={"index": index, "task": task, "method": self.method.name, "data": data},
        )  # fmt: skip

    def _steps(self, task: Task) -> int:
        """Optimiser steps of a task."""
        config = self.config
        if not self.method.learns:
            return 0
        return config.steps or planned_steps(unwrap(config.step_rule), len(task.train), config.batch_size)

    def _steps_before(self, index: int) -> int:
        """Optimiser steps of all tasks before this one."""
        return sum(self._steps(task) for task in self.sequence.tasks[:index])

    # -- the head -------------------------------------------------------------------------------------------

    def _inference(self) -> Inference:
        """How the method compares images with texts, with the model as it is now."""
        return self.method.inference({task.name: task.class_names for task in self.sequence.tasks})

    def _reference(self, head: TaskHead) -> Pixels | None:
        """Images that are no task's, by which the head follows the model; None if there are none, or it need not."""
        reference = self.sequence.reference
        if reference is None or not head.head.moves:
            return None
        return self.data.cached(reference, "reference")

    def _show(self, head: TaskHead, base: Inference, index: int, *, trained: bool) -> None:
        """Show the head a task's images, after the task has been learned."""
        tasks = self.sequence.tasks[: index + 1]
        train = self.data.pixels(tasks[-1].train, f"{tasks[-1].name} train")
        reference = self._reference(head) if trained else None
        head.after(base, tasks, train, self.templates, self.before, reference, trained=trained)
        self.before = None

    def _learn_frozen(self, head: TaskHead) -> AccuracyRows:
        """What the pretrained model reaches with a head, in seconds: evaluated, and kept as a model of the run."""
        base = Inference(self.clip)
        for index in range(len(self.sequence.tasks)):
            self._show(head, base, index, trained=False)
        inference = head.inference(base)
        rows = self._evaluate("frozen", [len(self.sequence.tasks)], inference=inference, kept=self.pretrained)
        self.folder.write_frozen_head(head_tensors(head))
        head.clear()
        found = sum(value or 0 for value in rows.mcil) / len(rows.mcil)
        log.info(
            "the frozen model with a head has %.1f %% among all classes, and can be used already (tasso classify %s "
            "--after frozen); now it is trained",
            found, self.folder.path,
        )  # fmt: skip
        return rows

    # -- evaluation -----------------------------------------------------------------------------------------

    def _evaluate(
        self,
        when: str,
        learned: Sequence[int],
        *,
        inference: Inference | None = None,
        with_alignment: bool = False,
        kept: dict[str, Embedded] | None = None,
    ) -> AccuracyRows:
        """Evaluate a model, the current one by default, on all tasks.

        Args:
            when: for messages.
            learned, kept: as for `accuracy_rows`.
        """
        if inference is None:
            base = self._inference()
            inference = self.head.inference(base) if self.head else base
        tasks = self.sequence.tasks
        self.data.cache.begin_phase()
        # One by one: while the first are evaluated, others may still be read.
        pixels = (self.data.cached(task.evaluated, f"{task.name} {task.split}") for task in tasks)
        with progress(f"evaluating {when}", sum(len(task.evaluated) for task in tasks)) as advance:
            rows = accuracy_rows(
                inference,
                tasks,
                pixels,
                self.templates,
                self.config.eval_batch_size,
                lambda n: advance(n, ""),
                with_alignment=with_alignment,
                learned=learned if self.config.scores_seen else (),
                merge_names=self.config.merges_names,
                kept=kept,
            )
        # In steps of classes, what counts is all classes learned so far; of its own step, an image has few.
        setting, row = ("Seen", rows.seen[0]) if rows.seen else ("MTIL", rows.mtil)
        measured = zip(self.sequence.names, row, strict=True)
        accuracies = ", ".join(f"{name} {value:.1f}" for name, value in measured if value is not None)
        log.info("%s, accuracy (%%), %s: %s", when, setting, accuracies)
        return rows
