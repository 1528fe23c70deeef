"""Commands about images on disk: data prepare, data check, data pack."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

from tasso.cli.words import add_run_options, flags_of, new_parser, only_given, parsed
from tasso.config import RunConfig, from_dict
from tasso.errors import ConfigError

DATA_OPTIONS = (
    "benchmark", "tasks", "data_root", "sequence", "limit_tasks", "test_per_class", "shots", "seed", "test_share",
    "split_seed", "check_counts", "reference", "reference_images", "reference_seed", "workers", "pack_dir", "pack_size",
    "corrupt",
)  # fmt: skip


def data(words: list[str]) -> None:
    """tasso data prepare|check|pack"""
    actions: dict[str, Callable[[list[str]], None]] = {
        "prepare": data_prepare, "check": data_check, "pack": data_pack
    }  # fmt: skip
    if not words:
        raise ConfigError(f"data: which? {', '.join(actions)}")
    if words[0] in ("-h", "--help"):
        for action in actions.values():
            with contextlib.suppress(SystemExit):  # each parser ends the program when it has shown its help
                action(["--help"])
            print()
        sys.exit(0)
    if words[0] not in actions:
        raise ConfigError(f"data: no {words[0]!r}. There are: {', '.join(actions)}")
    actions[words[0]](words[1:])


def data_prepare(words: list[str]) -> None:
    """tasso data prepare NAME …"""
    from tasso.data.prepare import RECIPES
    from tasso.data.prepare.prepare import Names, Options, outcome_json, outcome_lines, plan, prepare

    parser = new_parser("tasso data prepare", "Get, unpack and annotate the paper's data sets.")
    parser.add_argument("names", type=str, nargs="+", help=f"all, or some of: {', '.join(RECIPES)}")
    parser.add_argument("--root", type=Path, required=True, help="folder of all data sets; later --data-root")
    parser.add_argument("--archives", type=Path | None, default=None, help="look for archives here, too")
    parser.add_argument("--download", type=bool, default=True, help="download what torchvision has an address for")
    parser.add_argument("--check-archives", type=bool, default=True, help="refuse archives with another checksum")
    parser.add_argument("--check-counts", type=bool, default=True, help="refuse sizes that differ from the paper's")
    parser.add_argument("--split-seed", type=int, default=1102, help="seed of splits that are drawn here [1102]")
    parser.add_argument(
        "--names-style", type=Names, default="spaces", help="underscores in class names: spaces or coop"
    )
    parser.add_argument("--reference-images", type=int, default=100_000, help="of ImageNet; 0: all [100000]")
    parser.add_argument("--reference-seed", type=int, default=1102, help="seed of the reference subset [1102]")
    parser.add_argument("--overwrite", type=bool, default=False, help="replace an annotation file that was there")
    parser.add_argument("--dry-run", type=bool, default=False, help="say what would be done, and do nothing")
    parser.add_argument("--json", type=bool, default=False, help="print JSON instead of text")
    flags = ["--download", "--check-archives", "--check-counts", "--overwrite", "--dry-run", "--json"]
    values = parsed(parser, words, flags=flags)
    names, root, dry_run, as_json = (values.pop(key) for key in ("names", "root", "dry_run", "json"))
    options = Options(names=values.pop("names_style"), **values)
    if dry_run:
        print("\n".join(plan(names, root, options)))
        return
    outcomes = prepare(names, root, options)
    print(json.dumps(outcome_json(outcomes), indent=1) if as_json else "\n".join(outcome_lines(outcomes)))
    if any(outcome.problem for outcome in outcomes):
        sys.exit(2)


CHECK_OPTIONS = (
    "benchmark", "data_root", "sequence", "limit_tasks", "test_per_class", "reference_images", "reference_seed",
    "model", "pretrained", "template", "protocol", "device", "precision", "eval_batch_size", "workers", "cache_gib",
    "pack_dir", "pack_size",
)  # fmt: skip


def data_check(words: list[str]) -> None:
    """tasso data check"""
    from tasso.report.data_check import check, report_lines

    parser = new_parser("tasso data check", "Sizes, images and class names of a benchmark; with a model, its accuracy.")
    parser.add_argument("--quick", type=bool, default=False, help="do not decode the images")
    parser.add_argument("--tolerance", type=float, default=0.5, help="points that an accuracy may be off [0.5]")
    parser.add_argument("--json", type=bool, default=False, help="print JSON instead of text")
    add_run_options(parser, CHECK_OPTIONS)
    values = parsed(parser, words, flags=["--quick", "--json"])
    given = only_given(values, CHECK_OPTIONS)
    report = check(
        from_dict(given, "tasso data check"),
        quick=values["quick"],
        with_model="model" in given,
        tolerance=values["tolerance"],
    )
    print(json.dumps(report, indent=1) if values["json"] else "\n".join(report_lines(report)))
    if not report["ok"]:
        sys.exit(1)


def data_pack(words: list[str]) -> None:
    """tasso data pack"""
    from tasso.data import load_sequence
    from tasso.data.images import open_packs, thread_pool

    parser = new_parser("tasso data pack", "Decode each image of a benchmark once: training, test and reference.")
    parser.add_argument("--verify", type=bool, default=False, help="compare all packed pixels with their checksums")
    add_run_options(parser, DATA_OPTIONS)
    values = parsed(parser, words, flags=["--verify", *flags_of(RunConfig)])
    given = only_given(values, DATA_OPTIONS)
    config = from_dict(given, "tasso data pack")
    packs = open_packs(config, thread_pool(config.workers))
    if packs is None:
        raise ConfigError("pack_dir: where shall the packs lie? Give --pack-dir")
    # Own tasks bring no reference images, and need none to be packed.
    with_reference = config.tasks is None or config.reference is not None
    packs.packed(load_sequence(config, with_reference=with_reference), verify=values["verify"])
    if not packs.reports:
        print(f"{config.benchmark}: its images are drawn by code, there is nothing to pack")
        return
    width = max(len(report.name) for report in packs.reports)
    print(f"{'set':{width}}    images  left out           bytes  seconds")
    for r in packs.reports:
        print(f"{r.name:{width}}  {r.images:8}  {r.left_out:8}  {r.bytes:14}  {r.seconds:7.1f}")
