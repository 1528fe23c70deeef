"""Images from a Stable Diffusion model, generated once: PNG files, pairs.jsonl and generator.json in a folder."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tasso.data.annotated import FolderSource
from tasso.errors import ConfigError, DataError, ModelError, install
from tasso.files import is_temporary, locked, parse_json, read_bytes, write_atomically, write_text
from tasso.methods.synthetic.generator import OnProgress, Pairs, Request, collect, silent
from tasso.methods.synthetic.listing import Row, read_listing

log = logging.getLogger("tasso")
# The model of GIFT's authors; this is where it has moved to since.
DEFAULT_MODEL = "stable-diffusion-v1-5/stable-diffusion-v1-5"
# GIFT's authors keep the pipeline's own scheduler for 50 steps and take DPM-Solver for fewer.
DPM_BELOW = 50
MODEL_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")
WITHOUT = (
    "choose a generator that needs no diffusion model: --method.generator atlas (images drawn by code), folder (made "
    "elsewhere) or retrieval (the nearest of a captioned corpus)"
)
Asked = tuple[str, int]


class DiffusionGenerator:
    """An image follows from model, prompt, seed, steps and guidance, up to the rounding of another device or batch.

    Index lines are added a whole batch at a time, so that a request that was stopped goes on with the very batches it
    would have had. Images that the safety checker flags, or that are all black, are not made again: the index tells
    of them with `null` for a file.
    """

    stand_in: str = ""

    def __init__(self, model: str, steps: int, guidance: float, batch_size: int, device: torch.device) -> None:
        self.model, self.steps, self.guidance = model, steps, guidance
        self.batch_size, self.device = batch_size, device

    def check(self, requests: Sequence[Request] = ()) -> None:
        if requests and all(self._is_complete(request) for request in requests):
            return
        for package in ("diffusers", "transformers"):
            if importlib.util.find_spec(package) is None:
                raise _not_installed(package)
        if Path(self.model).is_dir():
            if not (Path(self.model) / "model_index.json").is_file():
                raise ConfigError(
                    f"source: no model_index.json in {self.model}. A Stable Diffusion model as diffusers saves it must "
                    "lie there"
                )
        elif not MODEL_NAME.fullmatch(self.model):
            raise ConfigError(f"source: neither a folder nor a model name such as {DEFAULT_MODEL}: {self.model!r}")
        else:
            self._find_online()

    def pairs(
        self, prompts: Sequence[str], seeds: Sequence[int], folder: Path, on_progress: OnProgress = silent
    ) -> Pairs:
        wanted = [(prompt, int(seed)) for prompt, seed in zip(prompts, seeds, strict=True)]  # JSON knows no numpy
        rows = self._rows(folder, wanted)
        if _to_do(folder, wanted, rows):
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder, partial(_refuse, folder)):
                rows = self._fill(folder, wanted, on_progress)
        else:  # nothing is written and diffusers is not needed
            on_progress(len(wanted))
        rows = rows[: len(wanted)]
        pairs = collect(FolderSource(folder), [(row.file, row.text) for row in rows if row.file is not None])
        if not pairs.texts:
            raise DataError(
                f"{folder}: none of the {len(rows)} images can be used: all are black or flagged by the model's "
                "safety checker. Delete the folder and choose another model, steps or guidance"
            )
        if dropped := len(rows) - len(pairs.images):
            log.info("%s: %d of %d images are black or were flagged; left out", folder, dropped, len(rows))
        return pairs

    def _is_complete(self, request: Request) -> bool:
        """Are all its images there? Then neither diffusers nor the model is needed."""
        wanted = list(zip(request.prompts, request.seeds, strict=True))
        return not _to_do(request.folder, wanted, self._rows(request.folder, wanted))

    # -- the folder ------------------------------------------------------------------------------------------

    @property
    def _settings(self) -> dict[str, Any]:
        return {"model": self.model, "steps": self.steps, "guidance": self.guidance}

    def _rows(self, folder: Path, wanted: Sequence[Asked]) -> list[Row]:
        """What the folder's index holds, or an error if it is not the beginning of this request."""
        about, index = folder / "generator.json", folder / "pairs.jsonl"
        advice = "Choose another folder or delete this one"
        if not about.is_file():
            strangers = sorted(path.name for path in folder.iterdir() if not _is_ours(path)) if folder.is_dir() else []
            if strangers:
                raise DataError(f"{folder}: holds no generator.json, but is not empty ({strangers[0]}). {advice}")
            return []
        try:
            found = parse_json(read_bytes(about))
        except ValueError as error:
            raise DataError(f"{about}: not valid JSON: {error}. {advice}") from None
        for key, value in self._settings.items():
            if (before := found.get(key) if isinstance(found, dict) else None) != value:
                raise DataError(f"{folder}: its images were made with {key} = {before!r}, not {value!r}. {advice}")
        rows = read_listing(index, "prompt") if index.is_file() else []
        for row, (prompt, seed) in zip(rows, wanted, strict=False):
            if (row.text, row.seed) != (prompt, seed):
                raise DataError(
                    f"{row.where}: the image of another request: {row.text!r} with seed {row.seed}, not {prompt!r} "
                    f"with seed {seed}. {advice}"
                )
        return rows

    def _fill(self, folder: Path, wanted: Sequence[Asked], on_progress: OnProgress) -> list[Row]:
        """Make what is missing. Images come before the lines that name them."""
        rows = self._rows(folder, wanted)  # again: another process may have been at work before the lock was ours
        for path in folder.iterdir():
            if is_temporary(path):  # of a process that was killed
                path.unlink()
        lines = [_line(row) for row in rows]
        to_do = _to_do(folder, wanted, rows)
        on_progress(len(wanted) - len(to_do))
        # What is not made again on resume must not move the run's own random numbers either.
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            pipeline = self._load()
            # Not before: the name of a model that cannot be loaded must not bind the folder.
            write_text(folder / "generator.json", json.dumps(self._settings, indent=1) + "\n")
            for start in range(0, len(to_do), self.batch_size):
                indices = to_do[start : start + self.batch_size]
                made = self._make(pipeline, [wanted[index] for index in indices])
                for index, (image, dropped) in zip(indices, made, strict=True):
                    file = None if dropped else f"{index:06d}.png"
                    if file is not None:
                        _save(image, folder / file)
                    prompt, seed = wanted[index]
                    lines[index : index + 1] = [_line(Row("", file, prompt, seed, dropped))]
                write_text(folder / "pairs.jsonl", "\n".join(lines) + "\n")
                on_progress(len(indices))
        del pipeline
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # training needs the memory now
        return self._rows(folder, wanted)

    # -- the model -------------------------------------------------------------------------------------------

    def _load(self) -> Any:
        """The pipeline, on its device. Weights come from safetensors only: a pickle would run what others wrote."""
        try:
            # Not an import statement: the package is an extra, and its types would be read by everyone's type checker.
            diffusers: Any = importlib.import_module("diffusers")
            importlib.import_module("transformers")
        except ImportError as error:
            raise _not_installed(error.name or "diffusers") from None
        try:
            pipeline = diffusers.StableDiffusionPipeline.from_pretrained(
                self.model,
                use_safetensors=True,
                low_cpu_mem_usage=importlib.util.find_spec("accelerate") is not None,
            )
        except Exception as error:  # the hub, safetensors and both libraries raise errors of many kinds
            raise ModelError(
                f"{self.model}: cannot be loaded as a Stable Diffusion pipeline with safetensors weights: {error}"
            ) from None
        if self.steps < DPM_BELOW:
            solver = diffusers.DPMSolverMultistepScheduler
            pipeline.scheduler = solver.from_config(pipeline.scheduler.config)
        pipeline.set_progress_bar_config(disable=True)  # one bar per batch would be too many
        half = self.device.type == "cuda"
        return pipeline.to(self.device, torch.float16 if half else torch.float32)

    def _make(self, pipeline: Any, requests: Sequence[Asked]) -> list[tuple[Any, str]]:
        """An image for each request, and why it is dropped, or ""."""
        made = pipeline(
            [prompt for prompt, _ in requests],
            num_inference_steps=self.steps,
            guidance_scale=self.guidance,
            # On the CPU: the noise at the start is then the same for every device.
            generator=[torch.Generator().manual_seed(seed) for _, seed in requests],
        )
        flagged = made.nsfw_content_detected or [False] * len(requests)
        return [
            (image, "safety checker" if flag else "black" if image.getbbox() is None else "")
            for image, flag in zip(made.images, flagged, strict=True)
        ]

    def _find_online(self) -> None:
        """Is there such a model, here or at the hub? A small file is fetched, the weights when they are needed."""
        hub: Any = importlib.import_module("huggingface_hub")
        try:
            hub.hf_hub_download(self.model, "model_index.json")
        except Exception:  # no network, no such model, no permission: errors of many kinds, and long ones
            raise ConfigError(
                f"source: the model {self.model} is neither here nor can it be fetched. Give the folder of a Stable "
                f"Diffusion model as diffusers saves it, or {WITHOUT}"
            ) from None


def _not_installed(package: str) -> ConfigError:
    return ConfigError(
        f"generator: diffusers needs the package {package!r}. Install it with {install('gift')}, or {WITHOUT}"
    )


def _to_do(folder: Path, wanted: Sequence[Asked], rows: Sequence[Row]) -> list[int]:
    """Indices of the requests that have no line yet, or whose image has been deleted."""
    gone = [i for i, row in enumerate(rows[: len(wanted)]) if row.file and not (folder / row.file).is_file()]
    return [*gone, *range(len(rows), len(wanted))]


def _line(row: Row) -> str:
    why = {"dropped": row.dropped} if row.dropped else {}
    return json.dumps({"file": row.file, "prompt": row.text, "seed": row.seed, **why}, ensure_ascii=False)


def _save(image: Any, path: Path) -> None:
    write_atomically(path, lambda temporary: image.save(temporary, format="PNG"))


def _is_ours(path: Path) -> bool:
    """Is this what a process leaves behind that was killed before anything was made?"""
    return path.name == ".lock" or is_temporary(path)


def _refuse(folder: Path) -> None:
    raise DataError(f"{folder}: another process is making images in this folder")
