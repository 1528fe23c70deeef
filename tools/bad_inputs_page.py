"""Write docs/bad-inputs.md: `python tools/bad_inputs_page.py`; with --check, only say whether it is up to date.

The catalogue lies in tests/bad_inputs; every command in it is carried out in a temporary folder.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Carry out the catalogue and write, or compare, the page."""
    import torch

    torch.set_num_threads(1)
    sys.path.insert(0, str(ROOT / "tests"))
    case, page, world = (importlib.import_module(f"bad_inputs.{name}") for name in ("case", "page", "world"))
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        world.build(base / "world")

        def outcome_of(bad: Any) -> tuple[Any, Path]:
            place = case.prepared(bad, base / "world", base / bad.name)
            return case.carried_out(bad.words, place), place

        text: str = page.page(outcome_of)
    if "--check" not in sys.argv[1:]:
        page.PAGE.write_text(text, encoding="utf-8")
    elif page.PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{page.PAGE} is not what the catalogue gives now; run python tools/bad_inputs_page.py")


if __name__ == "__main__":
    main()
