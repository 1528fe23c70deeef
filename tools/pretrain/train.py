"""The training loop: one student, one frozen teacher, all data on the device."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
import torch.nn.functional as F
from open_clip.tokenizer import SimpleTokenizer
from safetensors.torch import load_file, save
from torch import Tensor, nn

from .data import DRAWN, Prepared
from .objective import blend, contrastive_loss, cosine_distance, positives, random_views, similarity_loss
from .vocab import (
    CONFIG_NAME,
    MERGES_NAME,
    WEIGHTS_NAME,
    cut_config,
    cut_table,
    load_tokenizer,
    merges_path,
    read_config,
    write_atomically,
)

Encoder = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Settings:
    """How to train. Weights of zero switch a loss off.

    Attributes:
        steps: Optimiser steps; fewer when `minutes` end first.
        minutes: Time limit, loading and compiling included; the learning rate reaches zero with steps or
            minutes, whichever end first.
        batch_size: Images per step: real ones with texts, drawings, and blends of real ones.
        drawn_share: Share of drawings in a batch.
        blend_share: Share of blended images, which only serve image distillation.
        bank_texts: Further texts per step that only serve text distillation.
        lr: Largest learning rate.
        warmup: Share of the run over which the learning rate rises.
        weight_decay: On matrices; not on tables, biases and norms.
        ema: Decay of the averaged weights, which are the ones written; 0 writes the last weights.
        image_weight: Weight of image feature distillation.
        text_weight: Weight of text feature distillation.
        similarity_weight: Weight of the distillation of image-text similarities.
        contrastive_weight: Weight of the contrastive loss.
        drawn_text_weight: Weight of text feature distillation on the drawings' captions. A teacher that never
            saw drawings has nothing to say about them.
        crop: Area that crops of real images keep.
        drawn_crop: Area that crops of drawings keep; captions name what a tight crop would lose.
        jitter: Brightness and contrast jitter of real images.
        flip_drawn: Mirror drawings too. Their captions may say "left".
        max_scale: Upper limit of the logit scale.
        seed: Seed of everything random in the loop.
        compile: Compile the encoders.
        log_every: Steps between two records of the log.
        save_minutes: Minutes between two checkpoints.
    """

    steps: int = 12_000
    minutes: float = 9.0
    batch_size: int = 2048
    drawn_share: float = 0.4
    blend_share: float = 0.1
    bank_texts: int = 512
    lr: float = 5e-4
    warmup: float = 0.03
    weight_decay: float = 0.05
    ema: float = 0.999
    image_weight: float = 10.0
    text_weight: float = 10.0
    similarity_weight: float = 1.0
    contrastive_weight: float = 1.0
    drawn_text_weight: float = 0.0
    crop: tuple[float, float] = (0.4, 1.0)
    drawn_crop: tuple[float, float] = (0.8, 1.0)
    jitter: float = 0.0
    flip_drawn: bool = False
    max_scale: float = 100.0
    seed: int = 0
    compile: bool = False
    log_every: int = 100
    save_minutes: float = 2.0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 2 or self.log_every < 1:
            raise ValueError("steps, batch_size and log_every must be positive, batch_size at least 2")
        if not 0 <= self.drawn_share + self.blend_share <= 1:
            raise ValueError("drawn_share and blend_share must not exceed 1 together")


def load_model(folder: Path) -> Any:
    """The model of a folder, float32, on the CPU."""
    model = _build(read_config(folder))
    model.load_state_dict({name: value.float() for name, value in load_file(folder / WEIGHTS_NAME).items()})
    return model


def _build(config: dict[str, Any]) -> Any:
    model_cfg = config["model_cfg"]
    return open_clip.CLIP(
        embed_dim=model_cfg["embed_dim"], vision_cfg=model_cfg["vision_cfg"], text_cfg=model_cfg["text_cfg"]
    )


def build_student(init: Path, merges: Path, *, random_weights: bool = False) -> tuple[Any, dict[str, Any]]:
    """A model of the folder's architecture with the vocabulary of `merges`, and its config.

    The weights are the folder's, the token table cut to the new vocabulary; with `random_weights` only the
    folder's config is used.
    """
    source = read_config(init)
    context_length = source["model_cfg"]["text_cfg"]["context_length"]
    tokenizer = SimpleTokenizer(str(merges), context_length=context_length)
    config = cut_config(source, tokenizer.vocab_size)
    student = _build(config)
    if not random_weights:
        weights = {name: value.float() for name, value in load_file(init / WEIGHTS_NAME).items()}
        table = weights["token_embedding.weight"]
        weights["token_embedding.weight"] = cut_table(table, load_tokenizer(init), tokenizer)
        student.load_state_dict(weights)
    return student, config


def save_model(folder: Path, weights: dict[str, Tensor], config: dict[str, Any], merges: Path) -> None:
    """Write a folder that open_clip reads; every file is replaced in one step, the weights last."""
    folder.mkdir(parents=True, exist_ok=True)
    half = {name: value.detach().to("cpu", torch.float16).contiguous() for name, value in weights.items()}
    write_atomically(folder / CONFIG_NAME, (json.dumps(config, indent=4) + "\n").encode())
    write_atomically(folder / MERGES_NAME, merges.read_bytes())
    write_atomically(folder / WEIGHTS_NAME, save(half, metadata={"format": "pt"}))


def merge(first: Path, second: Path, share: float, out: Path) -> None:
    """Write the weighted mean of two models, `share` of it the second; the second was trained from the first.

    Means of a model and of what it was fine-tuned to often keep more of the old than the new has kept
    (WiSE-FT), so this trades new knowledge for old without another run. The vocabulary is the second's.
    """
    merges = merges_path(second)
    old, config = build_student(first, merges)
    new = load_model(second).state_dict()
    mean = {name: torch.lerp(value, new[name], share) for name, value in old.state_dict().items()}
    save_model(out, mean, config, merges)


class Sampler:
    """Draws batches from the prepared data, all of it on one device."""

    def __init__(self, data: Prepared, settings: Settings, device: torch.device, *, distil: bool) -> None:
        self.settings = settings
        self.device = device
        self.images = torch.tensor(np.asarray(data.images), device=device)
        self.tokens = torch.from_numpy(data.tokens).to(device)
        self.group = torch.from_numpy(data.group).to(device)
        self.rows = torch.from_numpy(data.rows).to(device)
        self.start = torch.from_numpy(data.start).to(device)
        self.count = torch.from_numpy(data.count).to(device)
        self.meanings = torch.from_numpy(data.meanings).to(device)
        self.bank_rows = torch.from_numpy((data.kind != DRAWN).nonzero()[0]).to(device)
        self.labelled, self.unlabelled, self.drawn = data.labelled, data.unlabelled, data.drawn
        real = data.labelled + data.unlabelled
        batch = settings.batch_size
        self.n_drawn = min(round(batch * settings.drawn_share), data.drawn)
        self.n_blend = round(batch * settings.blend_share) if distil and real else 0
        self.n_real = min(batch - self.n_drawn - self.n_blend, data.labelled)
        self.n_bank = settings.bank_texts if distil and len(self.bank_rows) else 0
        self.generator = torch.Generator(device).manual_seed(settings.seed)

    def sample(self) -> tuple[Tensor, Tensor, Tensor]:
        """Images (real, drawn, blended; in [0, 1]), text rows (real, drawn, bank), and which are true of which."""
        chosen = self.settings
        real = self._distinct(self.labelled, self.n_real)
        drawn = self._distinct(self.drawn, self.n_drawn)
        views = []
        if self.n_real:
            views.append(random_views(self.images[real], chosen.crop, True, chosen.jitter, self.generator))
        if self.n_drawn:
            drawings = self.images[drawn + self.labelled + self.unlabelled]
            flip = chosen.flip_drawn
            views.append(random_views(drawings, chosen.drawn_crop, flip, 0.0, self.generator))
        if self.n_blend:
            pair = [self._any_real_view() for _ in range(2)]
            views.append(blend(pair[0], pair[1], self.generator))
        rows = [self._text_rows(real), self._text_rows(drawn + self.labelled)]
        if self.n_bank:
            rows.append(self.bank_rows[self._integers(len(self.bank_rows), self.n_bank)].to(torch.int32))
        images = torch.cat([real, drawn + self.labelled])
        said = self.group[torch.cat(rows[:2])]
        return torch.cat(views), torch.cat(rows), positives(self.meanings[images], said)

    def _any_real_view(self) -> Tensor:
        index = self._integers(self.labelled + self.unlabelled, self.n_blend)
        return random_views(self.images[index], self.settings.crop, True, self.settings.jitter, self.generator)

    def _text_rows(self, image: Tensor) -> Tensor:
        """One random text of each image."""
        count = self.count[image]
        uniform = torch.rand(len(image), device=self.device, generator=self.generator)
        offset = torch.minimum((uniform * count).int(), count - 1)
        return self.rows[self.start[image] + offset]

    def _distinct(self, total: int, number: int) -> Tensor:
        return torch.randperm(total, device=self.device, generator=self.generator)[:number]

    def _integers(self, total: int, number: int) -> Tensor:
        return torch.randint(total, (number,), device=self.device, generator=self.generator)


class Teacher:
    """A frozen model: text features of the whole table computed once, image features of each view."""

    def __init__(self, folder: Path, data: Prepared, device: torch.device) -> None:
        self.model = load_model(folder).to(device).eval().requires_grad_(False)
        self.scale = self.model.logit_scale.exp().detach()
        self.encode_image: Encoder = self.model.encode_image
        with torch.no_grad(), mixed_precision(device):
            blocks = torch.split(torch.from_numpy(data.teacher_tokens), 8192 if device.type == "cuda" else 512)
            features = [F.normalize(self.model.encode_text(b.to(device)).float(), dim=-1) for b in blocks]
        self.text = torch.cat(features)


def mixed_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """bfloat16 on a GPU. CPUs stay in float32: on some, bfloat16 products are illegal instructions."""
    if device.type == "cuda":
        return torch.autocast("cuda", torch.bfloat16)
    return contextlib.nullcontext()


class Objective:
    """The weighted losses of one batch."""

    def __init__(
        self,
        student: Any,
        teacher: Teacher | None,
        sampler: Sampler,
        settings: Settings,
        mean_std: tuple[Tensor, Tensor],
    ) -> None:
        self.student, self.teacher, self.sampler, self.settings = student, teacher, sampler, settings
        self.mean, self.std = mean_std
        self.encode_image: Encoder = student.encode_image
        self.encode_text: Encoder = student.encode_text
        if settings.compile:
            self.encode_image = torch.compile(student.encode_image, dynamic=False)
            self.encode_text = torch.compile(student.encode_text, dynamic=False)
            if teacher is not None:
                teacher.encode_image = torch.compile(teacher.model.encode_image, dynamic=False)

    def warm_up(self) -> None:
        """Compile now. A machine whose compiler fails trains all the same, only slower."""
        if not self.settings.compile:
            return
        try:
            self()[0].backward()  # type: ignore[no-untyped-call]
        except Exception as error:  # dynamo, inductor, Triton and the C compiler each raise their own
            print(f"compiling failed, going on without: {type(error).__name__}: {error}", flush=True)
            self.encode_image, self.encode_text = self.student.encode_image, self.student.encode_text
            if self.teacher is not None:
                self.teacher.encode_image = self.teacher.model.encode_image

    def __call__(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss to minimise and its terms, unweighted, of a fresh batch."""
        s, chosen = self.sampler, self.settings
        pixels, rows, positive = s.sample()
        pixels = (pixels - self.mean) / self.std
        with mixed_precision(s.device):
            raw_image, raw_text = self.encode_image(pixels), self.encode_text(s.tokens[rows])
        # Features and losses are float32: cosines near one need it.
        image = F.normalize(raw_image.float(), dim=-1)
        text = F.normalize(raw_text.float(), dim=-1)
        scale = self.student.logit_scale.exp()
        pairs = s.n_real + s.n_drawn
        terms: dict[str, Tensor] = {}
        weights: dict[str, float] = {}
        if pairs and chosen.contrastive_weight:
            terms["contrastive"] = contrastive_loss(image[:pairs], text[:pairs], positive, scale)
            weights["contrastive"] = chosen.contrastive_weight
        if self.teacher is not None:
            terms |= self._distillation(pixels, rows, image, text, scale)
            weights |= {
                "image": chosen.image_weight,
                "text": chosen.text_weight,
                "similarity": chosen.similarity_weight,
                "drawn_text": chosen.drawn_text_weight,
            }
        total = torch.stack([weights[name] * value for name, value in terms.items()]).sum()
        return total, terms

    def _distillation(
        self, pixels: Tensor, rows: Tensor, image: Tensor, text: Tensor, scale: Tensor
    ) -> dict[str, Tensor]:
        assert self.teacher is not None
        s, chosen = self.sampler, self.settings
        n, pairs = s.n_real, s.n_real + s.n_drawn
        known_text = self.teacher.text[rows]
        terms: dict[str, Tensor] = {}
        if (chosen.image_weight or chosen.similarity_weight) and n + s.n_blend:
            with torch.no_grad(), mixed_precision(s.device):
                raw = self.teacher.encode_image(torch.cat([pixels[:n], pixels[pairs:]]))
            known = F.normalize(raw.float(), dim=-1)
            terms["image"] = cosine_distance(torch.cat([image[:n], image[pairs:]]), known)
            if chosen.similarity_weight and n:
                terms["similarity"] = similarity_loss(
                    scale * image[:n] @ text[:n].T, self.teacher.scale * known[:n] @ known_text[:n].T
                )
        if chosen.text_weight and n + s.n_bank:
            real = torch.cat([text[:n], text[pairs:]])
            terms["text"] = cosine_distance(real, torch.cat([known_text[:n], known_text[pairs:]]))
        if chosen.drawn_text_weight and s.n_drawn:
            terms["drawn_text"] = cosine_distance(text[n:pairs], known_text[n:pairs])
        return terms


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay matrices only. A decayed token row of a rare word would fade between two sightings."""
    decayed: list[Tensor] = []
    plain: list[Tensor] = []
    for name, value in model.named_parameters():
        (decayed if value.ndim >= 2 and "embedding" not in name else plain).append(value)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


def learning_rate(progress: float, peak: float, warmup: float) -> float:
    """Linear rise, then a half cosine down to zero at progress 1."""
    if progress < warmup:
        return peak * max(progress, 1e-3) / warmup
    return peak * (1 + math.cos(math.pi * min(1.0, (progress - warmup) / (1 - warmup)))) / 2


class Average:
    """Exponential moving average of a model's weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.live = model.state_dict()
        self.mean = {name: value.detach().clone() for name, value in self.live.items()} if decay else self.live
        self.updates = 0

    def update(self) -> None:
        """Take in the current weights. Early on the decay is smaller, so that short runs count too."""
        if not self.decay:
            return
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(list(self.mean.values()), list(self.live.values()), 1 - decay)


def train(
    prepared: Path,
    init: Path,
    out: Path,
    settings: Settings,
    *,
    teacher: Path | None = None,
    random_weights: bool = False,
    device: torch.device | None = None,
) -> dict[str, Any]:
    """Train a student and write it to a folder that open_clip reads.

    Args:
        prepared: Folder written by `prepare`.
        init: Model folder to start from.
        out: Folder for the weights, the config, the merges and ``train_log.json``.
        settings: How to train.
        teacher: Model folder to distil from; without one only the contrastive loss is used.
        random_weights: Take only the architecture from `init`.
        device: Where to train; the GPU if there is one.

    Returns:
        The log.
    """
    begin = time.monotonic()
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(settings.seed)
    torch.set_float32_matmul_precision("high")
    data = Prepared.load(prepared)
    student, config = build_student(init, data.merges, random_weights=random_weights)
    student.to(device).train()
    guide = Teacher(teacher, data, device) if teacher is not None else None
    sampler = Sampler(data, settings, device, distil=guide is not None)
    objective = Objective(student, guide, sampler, settings, _mean_std(config, device))
    optimiser = torch.optim.AdamW(
        parameter_groups(student, settings.weight_decay), lr=settings.lr, betas=(0.9, 0.98), fused=True
    )
    average = Average(student, settings.ema)
    log = Log(out, settings, sampler)

    def checkpoint() -> None:
        save_model(out, average.mean, config, data.merges)
        log.write()

    checkpoint()  # an unwritable folder shows now, not after ten minutes
    objective.warm_up()
    optimiser.zero_grad(set_to_none=True)
    saved = time.monotonic()
    try:
        for step, progress in _clock(settings, begin):
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(progress, settings.lr, settings.warmup)
            loss, terms = objective()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimiser.step()
            with torch.no_grad():
                student.logit_scale.clamp_(0, math.log(settings.max_scale))
            average.update()
            log.add(step, {"loss": loss, **terms, "scale": student.logit_scale.exp()}, progress)
            if time.monotonic() - saved > settings.save_minutes * 60:
                checkpoint()
                saved = time.monotonic()
    except KeyboardInterrupt:
        print("stopped: writing what was learned so far", flush=True)
    checkpoint()
    return log.content


def _mean_std(config: dict[str, Any], device: torch.device) -> tuple[Tensor, Tensor]:
    preprocess = config.get("preprocess_cfg", {})
    mean = torch.tensor(preprocess.get("mean", open_clip.OPENAI_DATASET_MEAN), device=device)
    std = torch.tensor(preprocess.get("std", open_clip.OPENAI_DATASET_STD), device=device)
    return mean.view(1, 3, 1, 1), std.view(1, 3, 1, 1)


def _clock(settings: Settings, begin: float) -> Iterator[tuple[int, float]]:
    """Steps and the progress of the run, by steps or by time, whichever is further on.

    The time limit counts from `begin`, so loading and compiling are part of it; progress counts from here.
    The device may lag behind the host; the log's synchronisation keeps the two together.
    """
    now = time.monotonic()
    left = begin + settings.minutes * 60 - now
    for step in range(settings.steps):
        spent = (time.monotonic() - now) / left if left > 0 else 1.0
        if spent >= 1:
            return
        yield step, max(step / settings.steps, spent)


class Log:
    """Means of the losses over `log_every` steps, kept on the device until they are due."""

    def __init__(self, out: Path, settings: Settings, sampler: Sampler) -> None:
        self.path = out / "train_log.json"
        self.every = settings.log_every
        batch = {
            "real": sampler.n_real,
            "drawn": sampler.n_drawn,
            "blend": sampler.n_blend,
            "bank": sampler.n_bank,
        }
        self.images = sampler.n_real + sampler.n_drawn + sampler.n_blend
        self.records: list[dict[str, float]] = []
        self.content: dict[str, Any] = {"settings": asdict(settings), "batch": batch, "records": self.records}
        self.sum: Tensor | None = None
        self.steps = 0
        self.begin = self.since = time.monotonic()

    def add(self, step: int, values: dict[str, Tensor], progress: float) -> None:
        """Take in one step; the first step is recorded too, so that a wrong set-up shows at once."""
        row = torch.stack([value.detach().float() for value in values.values()])
        self.sum = row if self.sum is None else self.sum + row
        self.steps += 1
        if step and (step + 1) % self.every:
            return
        means = (self.sum / self.steps).tolist()  # waits for the device
        now = time.monotonic()
        record = {"step": float(step + 1), "progress": progress, "seconds": now - self.begin}
        record |= {"images_per_s": self.images * self.steps / (now - self.since)}
        record |= dict(zip(values, means, strict=True))
        self.records.append({name: round(value, 5) for name, value in record.items()})
        print(" ".join(f"{name} {value:.4g}" for name, value in record.items()), flush=True)
        if not math.isfinite(record["loss"]):
            raise FloatingPointError(f"the loss is {record['loss']} after step {step + 1}")
        self.sum, self.steps, self.since = None, 0, now

    def write(self) -> None:
        """Write the log so far."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, (json.dumps(self.content, indent=1) + "\n").encode())
