"""A pytest plugin that reports test outcomes as JSON lines on a file descriptor; `yurt driver test` reads them.

The descriptor's number stands in YURT_DRIVER_REPORT. The collected tests come first, then each result.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from yurt.testing.driver_suite import DriverSuite

VARIABLE = "YURT_DRIVER_REPORT"
SUITE_MARK = "yurt_driver_suite"


def tell(**fields: Any) -> None:
    """Write a line, where somebody reads."""
    number = os.environ.get(VARIABLE, "")
    if number.isdigit():
        os.write(int(number), json.dumps(fields).encode() + b"\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Report the number of collected tests, and how many of them belong to the suite."""
    for item in session.items:
        item.user_properties.append((SUITE_MARK, is_of_suite(item)))
    tell(kind="collected", tests=len(session.items), suite=sum(map(is_of_suite, session.items)))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Report files that could not be collected."""
    if report.failed:
        tell(kind="error", file=report.nodeid, text=report.longreprtext)


def is_of_suite(item: pytest.Item) -> bool:
    """Whether a test belongs to the driver suite."""
    owner = getattr(item, "cls", None)
    return owner is not None and issubclass(owner, DriverSuite) and hasattr(DriverSuite, item.name.partition("[")[0])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Report the outcome of a test's call, and of its set-up and tear-down when they failed."""
    if report.when != "call" and report.passed:
        return
    reason = ""
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
    tell(
        kind="test",
        name=report.nodeid.rpartition("::")[2],
        file=report.nodeid.partition("::")[0],
        owner=report.nodeid.split("::")[1] if report.nodeid.count("::") > 1 else "",
        outcome=report.outcome,
        is_of_suite=bool(dict(report.user_properties).get(SUITE_MARK)),
        duration_s=report.duration,
        reason=reason,
        text=report.longreprtext if report.failed else "",
    )
