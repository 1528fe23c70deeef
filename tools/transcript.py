"""Carry out the commands of a page and keep what they print: `python tools/transcript.py PAGE FOLDER FILE`.

What stands in the page's `sh` and `python` blocks is run from top to bottom in FOLDER, with standard output and error
together, as a reader sees them. `tasso serve` is asked to stop when it has said its address. What was printed goes to
FILE, with paths below FOLDER as seen from there; the pages under docs/ quote from it, and a test compares them.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

SERVE = "tasso serve"


def commands(page: Path) -> list[str]:
    """Each command of the page's shell blocks, continued lines as one, and each Python block as one command."""
    found = []
    for language, text in re.findall(r"^```(sh|python)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        if language == "python":
            found.append(f"python - <<'END'\n{text}END")
        else:
            lines = text.replace("\\\n", " ").splitlines()
            found += [re.sub(r"  +", " ", line) for line in lines if line.strip() and not line.startswith("#")]
    return found


def carry_out(command: str, folder: Path) -> str:
    # Without a shell between, which Ctrl-C would end too.
    process = subprocess.Popen(
        f"exec {command}" if command.startswith(SERVE) else command,
        shell=True,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if command.startswith(SERVE) and "http://" in line:
            os.killpg(process.pid, signal.SIGINT)
    process.wait()
    return said + (f"(exit code {process.returncode})\n" if process.returncode else "")


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    page, folder, file = map(Path, sys.argv[1:])
    with file.open("w", encoding="utf-8") as transcript:
        for command in commands(page):
            print(f"$ {command}", file=transcript, flush=True)
            print(carry_out(command, folder).replace(f"{folder.resolve()}/", ""), file=transcript, flush=True)


if __name__ == "__main__":
    main()
