"""Scaling policies are the scaling blocks of the jobs that run."""

from __future__ import annotations

from typing import Any

from yurt.testing.http_api import Api, job_document


def scaled_job(job_id: str, **scaling: Any) -> dict[str, Any]:
    """A job whose group has a scaling block."""
    document = job_document(job_id)
    document["TaskGroups"][0]["Scaling"] = {"Min": 1, "Max": 5, "Policy": {"cooldown": "1m"}} | scaling
    return document


async def test_policies_are_listed_and_read(api: Api) -> None:
    await api.put("/v1/jobs", {"Job": scaled_job("one")})
    await api.put("/v1/jobs", {"Job": scaled_job("two", Enabled=False)})
    await api.register("plain")

    listed = await api.get("/v1/scaling/policies")
    (row,) = (await api.get("/v1/scaling/policies?job=two")).json
    whole = (await api.get(f"/v1/scaling/policy/{row['ID']}")).json

    target = {"Namespace": "default", "Job": "two", "Group": "group"}
    assert len(listed.json) == 2 and listed.index > 1
    assert set(row) == {"ID", "Enabled", "Type", "Target", "CreateIndex", "ModifyIndex"}
    assert (row["Enabled"], row["Type"], row["Target"]) == (False, "horizontal", target)
    assert (whole["Min"], whole["Max"], whole["Policy"], whole["Namespace"]) == (1, 5, {"cooldown": "1m"}, "default")
    assert (await api.get("/v1/scaling/policies?type=vertical")).json == []
    assert (await api.get("/v1/scaling/policies?namespace=other")).json == []


async def test_a_policy_keeps_its_id_and_goes_with_its_job(api: Api) -> None:
    await api.put("/v1/jobs", {"Job": scaled_job("one")})
    (before,) = (await api.get("/v1/scaling/policies")).json
    await api.put("/v1/jobs", {"Job": scaled_job("one", Max=9)})
    (after,) = (await api.get("/v1/scaling/policies")).json
    await api.call("DELETE", "/v1/job/one")

    missing = await api.get(f"/v1/scaling/policy/{before['ID']}")

    assert (before["ID"], before["CreateIndex"]) == (after["ID"], after["CreateIndex"])
    assert after["ModifyIndex"] > before["ModifyIndex"]
    assert (missing.status, missing.text) == (404, "policy not found")
    assert (await api.get("/v1/scaling/policies")).json == []
