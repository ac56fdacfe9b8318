"""The time of `-help` in one or several checkouts: `python -m bench help [--runs N] [CHECKOUT ...]`.

Each checkout needs a `.venv`. The checkouts take turns, so that a busy machine slows all of them alike. The table shows
the median of the process's user CPU time, which other work changes less than the time by the wall clock, and the least.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path
from statistics import median
from typing import Final

COMMANDS: Final = (("-help",), ("job", "status", "-help"))
MODULE: Final = ("-m", "yurt.cli.main")


def user_ms(checkout: Path, words: tuple[str, ...]) -> float:
    """User CPU time of one run, in milliseconds."""
    python = checkout / ".venv" / "bin" / "python"
    process = subprocess.Popen([python, *MODULE, *words], cwd=checkout, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{words} failed in {checkout}"
    return used.ru_utime * 1000


def main() -> None:
    """Print one line for each command and checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, metavar="N", help="run each command so often (15)")
    parser.add_argument("checkout", nargs="*", type=Path, help="checkouts to compare (this one)")
    options = parser.parse_args()
    checkouts = [each.resolve() for each in options.checkout] or [Path(__file__).resolve().parent.parent]
    for words in COMMANDS:
        times: dict[Path, list[float]] = {each: [] for each in checkouts}
        for checkout in checkouts:
            user_ms(checkout, words)  # compiles the modules
        for _ in range(options.runs):
            for checkout in checkouts:
                times[checkout].append(user_ms(checkout, words))
        for checkout, found in times.items():
            print(f"{' '.join(words):20} {checkout.name:10} user CPU {median(found):.0f} ms, least {min(found):.0f} ms")


if __name__ == "__main__":
    main()
