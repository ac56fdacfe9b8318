"""The routes of queues, and the spellings of `batch_queue` that node pools accept."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.api.decode import decode_value
from yurt.rules.batch_queue import batch_queue_problems, normalised
from yurt.sdk.errors import Invalid
from yurt.sdk.value import parse_duration, seconds
from yurt.structs.queueing.batch_queue import BatchQueue
from yurt.testing import factories
from yurt.testing.http_api import serving

DYNAMIC = {
    "tenant_type": "metadata", "metadata_key": "uid", "calc_interval": "10s", "half_life": "12h", "usage_weight": 10,
    "age_weight": 5, "max_age": "10m", "cpu_weight": 3, "max_cpu": 1000, "memory_weight": 2, "max_memory": 1024,
}  # fmt: skip
INNER = {name: value for name, value in DYNAMIC.items() if name not in ("tenant_type", "metadata_key")}
OUTER = {"tenant_type": "metadata", "metadata_key": "uid"}


def queue_of(block: Any) -> BatchQueue:
    return decode_value(normalised(block, parse_duration), BatchQueue, name="BatchQueue")[0]


@pytest.mark.parametrize(
    "block",
    [
        {"dynamic_priority": DYNAMIC},
        [{"dynamic_priority": [DYNAMIC]}],
        {**OUTER, "dynamic_priority": INNER},
        {"Type": "dynamic_priority", "TenantType": "metadata", "MetadataKey": "uid", "Config": INNER},
        {"DynamicPriority": {
            "TenantType": "metadata", "MetadataKey": "uid", "CalcInterval": 10**10, "HalfLife": 43_200 * 10**9,
            "FairshareWeight": 10, "AgeWeight": 5, "MaxAge": 600 * 10**9, "CPUWeight": 3, "MaxCPU": 1000,
            "MemoryWeight": 2, "MaxMemory": 1024,
        }},
        {"dynamic_priority": {
            **OUTER, "calc_interval": "10s", "half_life": "12h", "fairshare": {"weight": 10},
            "age": {"weight": 5, "max": "10m"}, "cpu": {"weight": 3, "max": 1000}, "memory": {"weight": 2, "max": 1024},
        }},
    ],
)  # fmt: skip
def test_all_published_spellings_mean_the_same(block: Any) -> None:
    queue = queue_of(block)
    dynamic = queue.dynamic_priority
    assert dynamic is not None
    assert batch_queue_problems(queue) == []
    assert (dynamic.tenant_type, dynamic.metadata_key) == ("metadata", "uid")
    assert (dynamic.fairshare_weight, dynamic.age_weight, dynamic.cpu_weight, dynamic.memory_weight) == (10, 5, 3, 2)
    assert (dynamic.max_age, dynamic.max_cpu, dynamic.max_memory) == (seconds(600), 1000, 1024)


def test_a_fair_share_queue_reads_days_and_weights() -> None:
    queue = queue_of({"fair_share": {"half_life": "7d", "weights": {"vision": 3}, "prices": {"nvidia/gpu/H100": 2.5}}})
    assert queue.fair_share is not None
    assert queue.fair_share.half_life == seconds(7 * 86_400)
    assert queue.fair_share.weights == {"vision": 3}
    assert batch_queue_problems(queue) == []


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({}, "exactly one"),
        ({"fifo": {}, "fair_share": {}}, "it has 2 types"),
        ({"fair_share": {"half_life": "0"}}, "half_life"),
        ({"fair_share": {"weights": {"vision": 0}}}, 'weights "vision" is 0'),
        ({"fair_share": {"weights": {"vision": -1}}}, 'weights "vision" is -1'),
        ({"fair_share": {"weights": {"vision": 1e30}}}, "between 0.001 and 1000"),
        ({"dynamic_priority": {"tenant_type": "metadata"}}, "metadata_key is needed"),
        ({"dynamic_priority": {"age_weight": 5}}, "max_age is needed"),
        ({"dynamic_priority": {"usage_weight": -5}}, "fairshare_weight is -5"),
        ({"fifo": {}, "reservations": 1000}, "reservations is 1000"),
    ],
)
def test_what_is_wrong_is_said(block: Any, problem: str) -> None:
    assert any(problem in text for text in batch_queue_problems(queue_of(block))), batch_queue_problems(queue_of(block))


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({"fifo": {}, "halflife": "1h"}, 'unknown key "halflife"'),
        ({"fair_share": {"half_lief": "1h"}}, 'unknown key "half_lief" in FairShare'),
        ({"fair_share": {"half_life": "soon"}}, "half_life"),
        ({"type": "lottery"}, '"lottery" is not a type of queue'),
        ({"fifo": 3}, "Fifo must be a block"),
    ],
)
def test_what_cannot_be_read_is_refused(block: Any, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        normalised(block, parse_duration)


async def test_the_queue_of_a_pool_over_http() -> None:
    async with serving() as http:
        wrong = await http.client.put(
            "/v1/node/pools", json={"Name": "gpu", "BatchQueue": {"fifo": {}, "reservations": -1}}
        )
        assert wrong.status == 400
        assert "reservations is -1" in await wrong.text()
        block = {
            "dynamic_priority": {"tenant_type": "namespace", "usage_weight": 50, "cpu_weight": 10, "max_cpu": 1000}
        }
        assert (await http.client.put("/v1/node/pools", json={"Name": "gpu", "BatchQueue": block})).status == 200
        pool = await (await http.client.get("/v1/node/pool/gpu")).json()
        assert pool["BatchQueue"]["DynamicPriority"]["FairshareWeight"] == 50
        again = pool | {"NodeIdentityTTL": "36h"}
        assert (await http.client.put("/v1/node/pool/gpu", json=again)).status == 200
        read = await (await http.client.get("/v1/node/pool/gpu")).json()
        assert (read["NodeIdentityTTL"], read["BatchQueue"]) == ("36h0m0s", pool["BatchQueue"])
        assert read["Hash"] == pool["Hash"]
        for number in range(3):
            job = factories.job(f"train-{number}", type="batch", node_pool="gpu")
            await http.server.resources.jobs.register(job)
        answer = await (await http.client.get("/v1/queue/jobs", params={"node_pool": "gpu", "sort": "priority"})).json()
        assert answer["Type"] == "dynamic_priority"
        assert [row["JobID"] for row in answer["Workloads"]] == ["train-0", "train-1", "train-2"]
        first = answer["Workloads"][0]
        assert (first["Position"], first["BasePriority"], first["AdjustedPriority"]) == (0, 50, 109)
        assert (first["FairshareAdjustment"], first["CpuAdjustment"], first["Tenant"]) == (50, 9, "default")
        assert first["Status"] == "blocked", "the pool has no nodes"
        page = await http.client.get("/v1/queue/jobs", params={"node_pool": "gpu", "per_page": "2"})
        token = page.headers["X-Nomad-NextToken"]
        assert token.endswith(".train-2")
        rest = await http.client.get("/v1/queue/jobs", params={"node_pool": "gpu", "next_token": token})
        assert [row["JobID"] for row in (await rest.json())["Workloads"]] == ["train-2"]
        tenants = await (await http.client.get("/v1/queue/tenants", params={"node_pool": "gpu"})).json()
        assert tenants["Tenants"][0]["TenantID"] == "default"
        assert tenants["Tenants"][0]["Waiting"] == 3
        other = await (await http.client.get("/v1/queue/jobs")).json()
        assert (other["Type"], other["Workloads"]) == ("passthrough", [])
