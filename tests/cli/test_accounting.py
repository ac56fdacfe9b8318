"""What `alloc status`, `job status` and `job report` say of GPUs."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from yurt.cli.commands.job.report import since_of
from yurt.cli.errors import UsageError
from yurt.cli.terminal.text import SECOND, now_ns
from yurt.cli.views.accounting import account_facts, with_live
from yurt.cli.views.requeues import next_attempt

SUMS = {
    "Allocs": 3, "Failed": 1, "Preempted": 2, "GPUHours": 10.0, "MeasuredGPUHours": 8.0, "UsedGPUHours": 4.0,
    "IdleGPUHours": 2.0, "ThrottledGPUHours": 0.0, "LostGPUHours": {"preempted": 0.5}, "EnergyKWh": 1.5,
    "VRAMPeakMB": 2048, "PCIeBytes": 0, "NVLinkBytes": 0, "QueueWaitSeconds": 60.0, "QueueWaitMaxSeconds": 90.0,
    "Cost": 25.0,
}  # fmt: skip
OWN = {"GPUs": 2.0, "Price": 2.5, "VRAMBookedMB": 4096, "VRAMMeanMB": 1024, "ThrottleReasons": {}, "LostReason": ""}


def test_an_account_in_words() -> None:
    facts = dict(account_facts(SUMS))

    assert facts["Utilisation"] == "50% of 8.00 GPU-hours measured"
    assert facts["Idle"] == "2.00 GPU-hours (25%)"
    assert facts["Queue Wait"] == "1m in the mean, 1m30s at most"
    assert (facts["Lost GPU Time"], facts["Preemptions"], facts["Cost"]) == ("0.50 GPU-hours preempted", 2, "25.00")


def test_what_nobody_measured_is_left_out() -> None:
    unmeasured = SUMS | {"MeasuredGPUHours": 0.0, "EnergyKWh": 0.0, "VRAMPeakMB": 0, "QueueWaitSeconds": None}

    assert not {"Utilisation", "Idle", "Energy", "VRAM", "Queue Wait"} & dict(account_facts(unmeasured)).keys()


def test_a_running_allocation_has_the_sums_of_its_node() -> None:
    live = {"MeasuredMs": 3_600_000, "BusyMs": 900_000, "WallMs": 10, "MemoryMBMs": 5120, "MemoryPeakMB": 600}
    facts = dict(account_facts(with_live(SUMS | OWN | {"Allocs": 1}, live)))

    assert facts["Utilisation"] == "25% of 1.00 GPU-hours measured"
    assert facts["VRAM"] == "mean 512 MiB, peak 600 MiB, booked 0 B"


@pytest.mark.parametrize(
    ("alloc", "has_attempts", "told"),
    [
        ({"ClientStatus": "complete"}, True, "as soon as there is room"),
        ({"ClientStatus": "running"}, True, "after its end: it saves its work"),
        ({"ClientStatus": "complete"}, False, "none: no attempts left"),
        ({"ClientStatus": "complete", "FollowupEvalID": "e"}, True, "59s from now"),
    ],
)
def test_the_next_attempt_of_what_was_preempted(alloc: dict[str, Any], has_attempts: bool, told: str) -> None:
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=60)
    stamp = at.isoformat()
    found = next_attempt(alloc, {"e": {"WaitUntil": stamp}}, has_attempts=has_attempts)

    assert found in (told, "1m from now", "1m0s from now")


def test_a_report(api: Any, run: Any) -> None:
    row = {"Namespace": "vision", **SUMS, "Running": {"Allocs": 1, "GPUHours": 0.5}}
    job = {"Namespace": "vision", "JobID": "train", **SUMS}
    document = {"Since": 0, "Namespaces": [row], "Jobs": [job, job | {"JobID": "other"}], "JobsLeftOut": 0}
    api.answers["/v1/yurt/accounting"] = document
    code, out, _ = run("job", "report", "-jobs=1")

    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["vision", "3", "1", "10.00", "4.00", "2.00", "0.50", "2.00", "1m", "1m30s", "1.50", "kWh", "25.00"] in lines
    assert "train" in out and "1 more jobs: -jobs=2 shows them" in out


def test_a_report_of_nothing(api: Any, run: Any) -> None:
    api.answers["/v1/yurt/accounting"] = {"Since": 0, "Namespaces": [], "Jobs": [], "JobsLeftOut": 0}
    code, out, _ = run("job", "report")

    assert (code, out.strip()) == (0, "No allocation held a GPU since the beginning")


def test_since_is_a_date_or_a_span() -> None:
    assert since_of("") == 0
    assert since_of("1970-01-03") == 2 * 86_400
    assert since_of("2d") == pytest.approx(now_ns() / SECOND - 2 * 86_400, abs=5)
    with pytest.raises(UsageError, match="-since=often is not a time"):
        since_of("often")
