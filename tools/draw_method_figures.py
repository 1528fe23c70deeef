"""Draw the figures of the methods' pages: `python tools/draw_method_figures.py`.

They are SVG files with colours for light and dark, written to docs/methods/figures. With --check nothing is written;
the exit code says whether the files are up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from method_figures.drawings import DRAWINGS

FIGURES = Path(__file__).parent.parent / "docs" / "methods" / "figures"


def main(args: list[str]) -> None:
    """Draw, or check."""
    for name, draw in DRAWINGS.items():
        file, text = FIGURES / f"{name}.svg", draw().svg()
        if "--check" not in args:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            sys.exit(f"docs/methods/figures/{file.name} is out of date: run tools/draw_method_figures.py")


if __name__ == "__main__":
    main(sys.argv[1:])
