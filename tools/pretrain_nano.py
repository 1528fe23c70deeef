"""Train a small CLIP on captioned images and on drawings, keeping what an older model knew.

``prepare`` decodes, draws and tokenises everything into a folder, ``train`` trains from that folder,
``evaluate`` measures zero-shot accuracy, ``merge`` averages the result with what it started from. A corpus is a
``corpus.npz`` (``bytes``: encoded images end to end, ``offsets``: one more than images) with a ``corpus.json``
of ``{"text": [...], "source": name}`` beside it.

    python tools/pretrain_nano.py prepare --teacher OLD --corpus A.npz B.npz --drawn 200000 --out data
    python tools/pretrain_nano.py train --data data --teacher OLD --init OLD --out nano
    python tools/pretrain_nano.py evaluate --model nano OLD --tasks ZIPS --atlas tasso.data.atlas
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from pretrain import data


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the commands."""
    options = _parser().parse_args(arguments)
    options.run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_prepare(commands.add_parser("prepare", help="decode, draw and tokenise", allow_abbrev=False))
    _add_train(commands.add_parser("train", help="train from a prepared folder", allow_abbrev=False))
    _add_evaluate(commands.add_parser("evaluate", help="zero-shot accuracy", allow_abbrev=False))
    _add_merge(commands.add_parser("merge", help="average two models", allow_abbrev=False))
    return parser


def _add_prepare(parser: argparse.ArgumentParser) -> None:
    known = data.Sources()
    parser.set_defaults(run=_prepare)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--corpus", type=Path, nargs="*", default=[], help="corpus .npz files")
    parser.add_argument("--zip", type=Path, nargs="*", default=[], help="annotated zips (training split)")
    parser.add_argument(
        "--zip-labels", action="store_true", help="use the zips' class names; else their images only distil"
    )
    parser.add_argument(
        "--caption-source",
        nargs="*",
        default=list(known.caption_sources),
        help="sources whose texts are sentences",
    )
    parser.add_argument("--drawn", type=int, default=0, help="number of drawings")
    parser.add_argument("--renderer", default=known.renderer, help="MODULE:FUNCTION that draws image number i")
    parser.add_argument("--teacher", type=Path, help="model folder whose tokenizer is cut; else CLIP's is")
    parser.add_argument("--vocab-size", type=int, default=6656, help="size of the student's vocabulary")
    parser.add_argument("--merges", type=Path, help="use this merges file instead of cutting the vocabulary")
    parser.add_argument("--context-length", type=int, default=32, help="tokens per text")
    parser.add_argument("--mixes", type=int, default=8_000, help="random phrases for text distillation")
    parser.add_argument("--size", type=int, default=known.size, help="side of the images")
    parser.add_argument("--seed", type=int, default=known.seed)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)


def _prepare(options: argparse.Namespace) -> None:
    from open_clip.tokenizer import default_bpe

    from pretrain import vocab

    begin = time.monotonic()
    sources = data.Sources(
        corpora=tuple(options.corpus),
        zips=tuple(options.zip),
        zip_labels=options.zip_labels,
        caption_sources=tuple(options.caption_source),
        drawn=options.drawn,
        renderer=options.renderer,
        seed=options.seed,
        size=options.size,
    )
    info = data.prepare(
        options.out,
        sources,
        base_merges=vocab.merges_path(options.teacher) if options.teacher else Path(default_bpe()),
        context_length=options.context_length,
        vocab_size=options.vocab_size,
        merges=options.merges,
        mixes=options.mixes,
        workers=options.workers,
    )
    print(json.dumps(info, indent=2))
    print(f"prepared in {time.monotonic() - begin:.0f} s")


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_train)
    parser.add_argument("--data", type=Path, required=True, help="prepared folder")
    parser.add_argument("--init", type=Path, required=True, help="model folder to start from")
    parser.add_argument("--random-weights", action="store_true", help="take only the architecture from --init")
    parser.add_argument("--teacher", type=Path, help="model folder to distil from")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--device", help="cuda or cpu; the GPU if there is one")
    from pretrain.train import Settings

    for field in fields(Settings):  # each setting is an option: one place to change a default
        name, value = "--" + field.name.replace("_", "-"), field.default
        if name == "--minutes":
            name = "--minutes-limit"
        if isinstance(value, bool):
            parser.add_argument(name, dest=field.name, action=argparse.BooleanOptionalAction, default=value)
        elif isinstance(value, tuple):
            parser.add_argument(
                name,
                dest=field.name,
                type=float,
                nargs=2,
                metavar=("LOW", "HIGH"),
                default=value,
                help=f"{value}",
            )
        else:
            parser.add_argument(name, dest=field.name, type=type(value), default=value, help=f"default {value}")


def _train(options: argparse.Namespace) -> None:
    import torch

    from pretrain.train import Settings, train

    chosen = {field.name: getattr(options, field.name) for field in fields(Settings)}
    chosen |= {name: tuple(chosen[name]) for name in ("crop", "drawn_crop")}
    train(
        options.data,
        options.init,
        options.out,
        Settings(**chosen),
        teacher=options.teacher,
        random_weights=options.random_weights,
        device=torch.device(options.device) if options.device else None,
    )


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_evaluate)
    parser.add_argument("--model", type=Path, nargs="+", required=True, help="model folders")
    parser.add_argument("--tasks", type=Path, help="folder of annotated zips")
    parser.add_argument("--atlas", help="module with DOMAINS and render, e.g. tasso.data.atlas")
    parser.add_argument("--template", default="a photo of a {}.", help="for the zips")
    parser.add_argument("--atlas-template", default="a photo of a {}.", help="for the drawn tasks")
    parser.add_argument("--limit", type=int, help="about this many test images per zip")
    parser.add_argument("--per-class", type=int, default=25, help="test drawings per class")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", help="cuda or cpu; the GPU if there is one")
    parser.add_argument("--json", type=Path, help="file for the figures")


def _evaluate(options: argparse.Namespace) -> None:
    import torch

    from pretrain import evaluate
    from pretrain.vocab import write_atomically

    # Images are decoded before the device is touched: worker processes and CUDA do not mix.
    suites: dict[str, tuple[list[evaluate.Task], str]] = {}
    if options.tasks:
        tasks = evaluate.zip_tasks(options.tasks, options.size, limit=options.limit, workers=options.workers)
        suites["zips"] = tasks, options.template
    if options.atlas:
        drawn = evaluate.drawn_tasks(options.atlas, options.size, per_class=options.per_class, seed=options.seed)
        suites["drawn"] = drawn, options.atlas_template
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    results = {}
    for suite, (tasks, template) in suites.items():
        results[suite] = {str(folder): evaluate.score(folder, tasks, template, device) for folder in options.model}
        print(f"{suite}, {template!r}\n{evaluate.table(results[suite])}\n")
    if options.json:
        write_atomically(options.json, (json.dumps(results, indent=1) + "\n").encode())


def _add_merge(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_merge)
    parser.add_argument("--first", type=Path, required=True, help="model folder training started from")
    parser.add_argument("--second", type=Path, required=True, help="model folder it led to")
    parser.add_argument("--share", type=float, required=True, help="share of the second, 0 to 1")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")


def _merge(options: argparse.Namespace) -> None:
    from pretrain.train import merge

    merge(options.first, options.second, options.share, options.out)


if __name__ == "__main__":
    main()
