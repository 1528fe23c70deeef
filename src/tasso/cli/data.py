"""Commands for images on disk: data prepare, data check, data pack."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

from tasso.cli.options import add_run_options, given_options
from tasso.cli.parser import Parser
from tasso.config import from_dict
from tasso.errors import ConfigError


def data(args: list[str]) -> None:
    """tasso data prepare|check|pack"""
    actions: dict[str, Callable[[list[str]], None]] = {
        "prepare": data_prepare, "check": data_check, "pack": data_pack
    }  # fmt: skip
    if not args:
        raise ConfigError(f"data: which? {', '.join(actions)}")
    if args[0] in ("-h", "--help"):
        for action in actions.values():
            with contextlib.suppress(SystemExit):  # each parser exits after its help
                action(["--help"])
            print()
        sys.exit(0)
    if args[0] not in actions:
        raise ConfigError(f"data: no {args[0]!r}. There are: {', '.join(actions)}")
    actions[args[0]](args[1:])


def data_prepare(args: list[str]) -> None:
    """tasso data prepare NAME …"""
    from tasso.data.prepare import RECIPES
    from tasso.data.prepare.options import Names, Options
    from tasso.data.prepare.prepare import outcome_json, outcome_lines, plan, prepare

    parser = Parser("tasso data prepare", "Get, unpack and annotate the paper's data sets.")
    parser.add_argument("names", type=str, nargs="+", help=f"all, or some of: {', '.join(RECIPES)}")
    parser.add_argument("--root", type=Path, required=True, help="folder of all data sets; later --data-root")
    parser.add_argument("--archives", type=Path | None, default=None, help="look for archives here, too")
    parser.add_argument("--download", type=bool, default=True, help="download what torchvision has an address for")
    parser.add_argument("--check-archives", type=bool, default=True, help="refuse archives with another checksum")
    parser.add_argument("--check-counts", type=bool, default=True, help="refuse sizes that differ from the paper's")
    parser.add_argument("--split-seed", type=int, default=1102, help="seed of splits that are drawn here")
    parser.add_argument("--names-style", type=Names, default="spaces", help="underscores in class names")
    parser.add_argument("--reference-images", type=int, default=100_000, help="of ImageNet; 0: all")
    parser.add_argument("--reference-seed", type=int, default=1102, help="seed of the reference subset")
    parser.add_argument("--overwrite", type=bool, default=False, help="replace an annotation file that was there")
    parser.add_argument("--dry-run", type=bool, default=False, help="print what would be done, and do nothing")
    parser.add_argument("--json", type=bool, default=False, help="print JSON instead of text")
    values = parser.parse(args)
    names, root, dry_run, as_json = (values.pop(key) for key in ("names", "root", "dry_run", "json"))
    options = Options(names=values.pop("names_style"), **values)
    if dry_run:
        print("\n".join(plan(names, root, options)))
        return
    outcomes = prepare(names, root, options)
    print(json.dumps(outcome_json(outcomes), indent=1) if as_json else "\n".join(outcome_lines(outcomes)))
    if any(outcome.problem for outcome in outcomes):
        sys.exit(2)


def data_check(args: list[str]) -> None:
    """tasso data check"""
    from tasso.cli.data_fingerprint import zero_shot
    from tasso.data.prepare.check import check, report_lines

    parser = Parser("tasso data check", "Sizes, images and class names of a benchmark; with a model, its accuracy.")
    parser.add_argument("--quick", type=bool, default=False, help="do not decode the images")
    parser.add_argument("--tolerance", type=float, default=0.5, help="points that an accuracy may be off")
    parser.add_argument("--json", type=bool, default=False, help="print JSON instead of text")
    add_run_options(parser, "check")
    values = parser.parse(args)
    given = given_options(values, "check")
    report = check(
        from_dict(given, "tasso data check"),
        quick=values["quick"],
        tolerance=values["tolerance"],
        zero_shot=zero_shot if "model" in given else None,
    )
    print(json.dumps(report, indent=1) if values["json"] else "\n".join(report_lines(report)))
    if not report["ok"]:
        sys.exit(1)


def data_pack(args: list[str]) -> None:
    """tasso data pack"""
    from tasso.data import load_sequence
    from tasso.data.images import open_packs, thread_pool

    parser = Parser("tasso data pack", "Decode each image of a benchmark once: training, test and reference.")
    add_run_options(parser, "pack")
    values = parser.parse(args)
    given = given_options(values, "pack")
    config = from_dict(given, "tasso data pack")
    packs = open_packs(config, thread_pool(config.workers))
    if packs is None:
        raise ConfigError("pack_dir: where shall the packs lie? Give --pack-dir")
    # Own tasks bring no reference images, and need none to be packed.
    with_reference = config.tasks is None or config.reference is not None
    packs.packed(load_sequence(config, with_reference=with_reference))
    if not packs.reports:
        print(f"{config.benchmark}: its images are drawn by code, there is nothing to pack")
        return
    width = max(len(report.name) for report in packs.reports)
    print(f"{'set':{width}}    images  left out           bytes  seconds")
    for r in packs.reports:
        print(f"{r.name:{width}}  {r.images:8}  {r.left_out:8}  {r.bytes:14}  {r.seconds:7.1f}")
