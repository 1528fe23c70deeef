"""Run the commands of a page and record their output: `python tools/transcript.py PAGE FOLDER FILE`.

The page's `sh` blocks are run from top to bottom in FOLDER, with standard output and standard error
together. `tasso serve` is interrupted once it has printed its address. The output is written to FILE, with paths
relative to FOLDER; the pages under docs/ quote from it, and a test compares them.
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
    """The commands of the page's shell blocks, continued lines joined."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [re.sub(r"  +", " ", line) for line in lines if line.strip() and not line.startswith("#")]


def run(command: str, folder: Path) -> str:
    """What the command prints, and its exit code if it failed."""
    # `exec`: otherwise Ctrl-C would end the shell as well.
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
    output = ""
    for line in process.stdout:
        output += line
        if command.startswith(SERVE) and "http://" in line:
            os.killpg(process.pid, signal.SIGINT)
    process.wait()
    return output + (f"(exit code {process.returncode})\n" if process.returncode else "")


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    page, folder, file = map(Path, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job, and what it starts, would ignore it
    with file.open("w", encoding="utf-8") as transcript:
        for command in commands(page):
            print(f"$ {command}", file=transcript, flush=True)
            print(run(command, folder).replace(f"{folder.resolve()}/", ""), file=transcript, flush=True)


if __name__ == "__main__":
    main()
