"""Run once more, one after the other, the tests that failed in the last run of pytest: a race passes, a fault does not.

Only a run that came to its end can be mended so. One that was interrupted, or could not collect or start, has tests
that nobody saw; so may one of which more tests failed than races make. What passes now is noted in `RACED`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

KEPT = Path(".pytest_cache/v")
RACED = Path(".pytest_cache/raced")
"""The ids of tests that failed side by side and passed alone, one a line."""
SOME_FAILED = int(pytest.ExitCode.TESTS_FAILED)
FAILED_MAX = 30


class Passed:
    """The ids of the tests that passed."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.ids.add(report.nodeid)


def kept(name: str) -> object:
    """What pytest's cache holds under a name; None when it holds nothing."""
    path = KEPT / name
    return json.loads(path.read_text()) if path.exists() else None


def failed_last() -> list[str]:
    """The tests to run; ends the process when they are not all that was wrong with the last run."""
    ended, failed = kept("yurt/ended"), kept("cache/lastfailed")
    if ended != SOME_FAILED:
        sys.exit(f"nothing to run once more: the last run of pytest ended with {ended}, not with {SOME_FAILED}")
    if not isinstance(failed, dict) or not failed:
        sys.exit("nothing to run once more: no failed test is recorded")
    if modules := [name for name in failed if "::" not in name]:
        sys.exit(f"nothing to run once more: {', '.join(modules)} could not be collected")
    if len(failed) > FAILED_MAX:
        sys.exit(f"{len(failed)} tests failed: races make no more than {FAILED_MAX}")
    return list(failed)


def main() -> None:
    """Run them; ends with 0 only when each of them has passed."""
    failed, passed = failed_last(), Passed()
    status = pytest.main(["--exitfirst", "--verbose", "--", *failed], plugins=[passed])
    if status:
        sys.exit(int(status))
    if missing := [name for name in failed if name not in passed.ids]:
        sys.exit(f"did not pass when run once more: {', '.join(missing)}")
    with RACED.open("a") as file:
        file.writelines(f"{name}\n" for name in failed)


if __name__ == "__main__":
    main()
