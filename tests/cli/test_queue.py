"""`yurt queue`, and what `yurt job status` shows of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

ROW = {
    "JobID": "train", "Namespace": "vision", "Status": "placing", "Position": 0, "CreatedAt": 10**18, "CreateIndex": 7,
    "Reason": "it is first and waits for room", "WaitsFor": "sweep", "GPUs": 8.0, "Tenant": "vision/ann",
    "BasePriority": 50, "ExpectedStart": 0, "ExpectedBy": 0, "LatestStart": 0,
}  # fmt: skip
TENANT = {
    "TenantID": "vision", "PercentageUsed": 75, "Waiting": 2,
    "TenantFairshare": {"cpu": 3.0, "memory": 6.0, "gpu": 1.5},
    "TotalFairshare": {"cpu": 4.0, "memory": 8.0, "gpu": 2.0},
}  # fmt: skip


@pytest.fixture
def queue(api: Any) -> Any:
    row = ROW | {"ExpectedStart": time.time_ns() + 3_600_500_000_000}
    api.answers |= {
        "/v1/node/pools": [{"Name": "gpu", "BatchQueue": {"FairShare": {}}}, {"Name": "default", "BatchQueue": None}],
        "/v1/queue/jobs": {"Type": "fair_share", "Workloads": [row], "NextToken": ""},
        "/v1/queue/tenants": {"Type": "fair_share", "Tenants": [TENANT]},
    }
    return api


def test_pools_with_a_queue_are_listed(queue: Any, run: Any) -> None:
    code, out, _ = run("queue", "list")
    assert code == 0
    assert out.splitlines()[1].split()[:5] == ["gpu", "fair_share", "1", "vision/train", "in"]


def test_the_jobs_of_a_queue(queue: Any, run: Any) -> None:
    code, out, _ = run("queue", "jobs", "-node-pool", "gpu", "-p")
    assert code == 0
    assert "vision/ann" in out
    assert "it is first and waits for room" in out
    code, _, err = run("queue", "jobs")
    assert code != 0
    assert "Name the node pool with -node-pool" in err


def test_a_pool_without_a_queue_says_so(queue: Any, run: Any) -> None:
    queue.answers["/v1/queue/jobs"] = {"Type": "passthrough", "Workloads": []}
    assert run("queue", "jobs", "-node-pool", "cpu")[1] == "No batch job queue configured for node pool: cpu\n"


def test_tenants_show_their_part(queue: Any, run: Any) -> None:
    code, out, _ = run("queue", "status", "-node-pool", "gpu")
    assert code == 0
    assert [line.split() for line in out.splitlines()[2:4]] == [
        ["vision", "cpu", "3.00", "/", "4.00", "75", "2"],
        ["vision", "memory", "6.00", "/", "8.00", "75", "2"],
    ]
    queue.answers["/v1/queue/tenants"] = {"Type": "fifo", "Tenants": None}
    code, _, err = run("queue", "status", "-node-pool", "gpu")
    assert code != 0
    assert 'Queue type "fifo" does not implement status' in err


def test_the_accuracy_of_expected_starts(queue: Any, run: Any) -> None:
    code, out, _ = run("queue", "accuracy", "-node-pool", "gpu")
    assert (code, out) == (0, "No job that waited has started since this leader's term began\n")
    queue.answers["/v1/queue/jobs"]["Accuracy"] = {
        "Starts": 40, "MedianError": 252_500_000_000, "MedianErrorPercent": 18.5, "AnyTimeErrorPercent": 9.5,
        "ByExpectedStartPercent": 52.5,
        "ByExpectedByPercent": 81, "WithLatestStart": 12, "AfterLatestStart": 0,
        "ByWait": [
            {"Below": 900_000_000_000, "Starts": 30, "MedianWait": 300_000_000_000, "MedianError": 60_000_000_000,
             "MedianErrorPercent": 20.0, "ByExpectedStartPercent": 55},
            {"Below": 0, "Starts": 10, "MedianWait": 3_600_000_000_000, "MedianError": 600_000_000_000,
             "MedianErrorPercent": 16.7, "ByExpectedStartPercent": 40},
        ],
    }  # fmt: skip
    code, out, _ = run("queue", "accuracy", "-node-pool", "gpu")
    assert code == 0
    assert "4m12s, 18.5 % of the wait" in out
    assert "9.5 % of the wait (the aim is under 20)" in out
    rows = [line.split() for line in out.splitlines()[-2:]]
    assert rows == [
        ["under", "15m0s", "30", "5m0s", "1m0s", "20", "%", "55", "%"],
        ["longer", "10", "1h0m0s", "10m0s", "16.7", "%", "40", "%"],
    ]
    assert "52.5 % (50 is right)" in out
    assert "0 of 12 with a latest start" in out
    code, out, _ = run("queue", "accuracy", "-node-pool", "gpu", "-json")
    assert (code, '"Starts": 40' in out) == (0, True)
    queue.answers["/v1/queue/jobs"] = {"Type": "passthrough", "Workloads": []}
    assert "No batch job queue" in run("queue", "accuracy", "-node-pool", "other")[1]
    assert run("queue", "accuracy")[0] != 0
