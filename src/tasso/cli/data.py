"""Commands for images on disk: data prepare, data check, data pack."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tasso.cli.options import add_options, add_run_options, given_options
from tasso.cli.parser import Parser
from tasso.config import from_dict, options_of
from tasso.errors import ConfigError


def data_prepare(args: list[str]) -> None:
    """tasso data prepare NAME …"""
    from tasso.data.prepare.options import Options
    from tasso.data.prepare.prepare import GROUPS, IN_TORCHVISION, outcome_lines, plan, prepare
    from tasso.data.prepare.sources import RECIPES

    does = "Get, unpack and annotate the paper's data sets; download or find those of other benchmarks."
    parser = Parser("tasso data prepare", does)
    others = ", ".join([*list(GROUPS)[1:], *IN_TORCHVISION])
    text = f"all, or some of: {', '.join(RECIPES)}; or some of: {others}"
    parser.argument("names", str, text, metavar="NAME", count="+")
    parser.option("--root", Path, "folder of all data sets; later --data-root", required=True)
    add_options(parser, Options, options_of(Options), "options")
    parser.option("--dry-run", bool, "print what would be done, and do nothing", False)
    parser.option("--json", bool, "print JSON instead of text", False)
    values = parser.parse(args)
    names, root, dry_run, as_json = (values.pop(key) for key in ("names", "root", "dry_run", "json"))
    options = Options(**{key: value for key, value in values.items() if value is not None})
    if dry_run:
        print("\n".join(plan(names, root, options)))
        return
    outcomes = prepare(names, root, options)
    print(json.dumps([vars(one) for one in outcomes], indent=1) if as_json else "\n".join(outcome_lines(outcomes)))
    if any(outcome.problem for outcome in outcomes):
        sys.exit(2)


def data_check(args: list[str]) -> None:
    """tasso data check"""
    from tasso.cli.data_fingerprint import zero_shot
    from tasso.data.prepare.check import check, report_lines

    does = "Sizes, images and class names of a benchmark or of own tasks; with a model, its accuracy."
    parser = Parser("tasso data check", does)
    parser.option("--decode", bool, "decode the images", True)
    parser.option("--tolerance", float, "points that an accuracy may be off", 0.5)
    parser.option("--json", bool, "print JSON instead of text", False)
    add_run_options(parser, "check", {"model": "none"})
    values = parser.parse(args)
    given = given_options(values, "check")
    report = check(
        from_dict(given, "data check"),
        quick=not values["decode"],
        tolerance=values["tolerance"],
        zero_shot=zero_shot if "model" in given else None,
    )
    print(json.dumps(report, indent=1) if values["json"] else "\n".join(report_lines(report)))
    if not report["ok"]:
        sys.exit(1)


def data_pack(args: list[str]) -> None:
    """tasso data pack"""
    from tasso.data import load_sequence
    from tasso.data.damaged import advice_on_unreadable
    from tasso.data.images import open_packs, thread_pool

    parser = Parser("tasso data pack", "Decode each image of a benchmark once: training, test and reference.")
    add_run_options(parser, "pack")
    values = parser.parse(args)
    given = given_options(values, "pack")
    config = from_dict(given, "data pack")
    packs = open_packs(config, thread_pool(config.workers))
    if packs is None:
        raise ConfigError("pack_dir: where shall the packs lie? Give --pack-dir")
    # Own tasks bring no reference images, and need none to be packed.
    with_reference = config.tasks is None or config.reference is not None
    with advice_on_unreadable(config):
        packs.packed(load_sequence(config, with_reference=with_reference))
    if not packs.reports:
        print(f"{config.benchmark}: its images are drawn by code, there is nothing to pack")
        return
    width = max(len(report.name) for report in packs.reports)
    print(f"{'set':{width}}    images  left out           bytes  seconds")
    for r in packs.reports:
        print(f"{r.name:{width}}  {r.images:8}  {r.left_out:8}  {r.bytes:14}  {r.seconds:7.1f}")
