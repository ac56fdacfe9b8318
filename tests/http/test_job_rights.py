"""What the contents of a job need of the caller who registers it, with tokens that decide."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from yurt.testing.access import Callers, bootstrapped
from yurt.testing.http_api import job_document

SUBMIT = 'namespace "default" { policy = "write" }\n'
READ_DATA = 'host_volume "data" { policy = "read" }\n'
WRITE_DATA = 'host_volume "data" { capabilities = ["mount-readwrite"] }\n'
PLUGIN_READ = 'plugin { policy = "read" }\n'
CSI_PLUGIN = 'namespace "default" { capabilities = ["submit-job", "csi-register-plugin"] }\n'
OVERRIDE = 'namespace "default" { capabilities = ["submit-job", "sentinel-override"] }\n'


def mounting(kind: str = "host", *, read_only: bool = False, propagation: str = "private") -> dict[str, Any]:
    """A job whose group has a volume that its task mounts."""
    job = job_document("web")
    volume = {"Name": "d", "Type": kind, "Source": "data", "ReadOnly": read_only}
    if kind == "csi":
        volume |= {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}
    job["TaskGroups"][0]["Volumes"] = {"d": volume}
    mount = {"Volume": "d", "Destination": "/d", "PropagationMode": propagation, "ReadOnly": read_only}
    job["TaskGroups"][0]["Tasks"][0]["VolumeMounts"] = [mount]
    return job


def serving_volumes() -> dict[str, Any]:
    """A job that is a CSI plugin."""
    job = job_document("plugin", Type="service")
    job["TaskGroups"][0]["Tasks"][0]["CSIPluginConfig"] = {"ID": "nfs", "Type": "node", "MountDir": "/csi"}
    return job


@pytest.fixture
async def callers() -> AsyncIterator[Callers]:
    async with bootstrapped() as found:
        yield found


async def register(callers: Callers, rules: str, job: dict[str, Any], **fields: Any) -> tuple[int, str]:
    """Register the job as a caller with these rules."""
    secret = await callers.secret_for(rules)
    answer = await callers.put("/v1/jobs", {"Job": job, **fields}, token=secret)
    return answer.status, answer.text


@pytest.mark.parametrize(
    ("rules", "job", "status"),
    [
        (SUBMIT, mounting(read_only=True), 403),
        (SUBMIT + READ_DATA, mounting(read_only=True), 200),
        (SUBMIT + READ_DATA, mounting(), 403),
        (SUBMIT + WRITE_DATA, mounting(), 200),
        (SUBMIT + WRITE_DATA, mounting(read_only=True), 200),
        (SUBMIT + READ_DATA, mounting(read_only=True, propagation="bidirectional"), 403),
        (SUBMIT + WRITE_DATA, mounting(read_only=True, propagation="bidirectional"), 200),
        (SUBMIT, mounting("csi"), 403),
        (SUBMIT + PLUGIN_READ, mounting("csi"), 200),
        ('namespace "default" { capabilities = ["submit-job"] }\n' + PLUGIN_READ, mounting("csi"), 403),
        (SUBMIT + PLUGIN_READ + WRITE_DATA, serving_volumes(), 403),
        (CSI_PLUGIN, serving_volumes(), 200),
    ],
)
async def test_volumes_and_plugins_need_rights_of_their_own(
    callers: Callers, rules: str, job: dict[str, Any], status: int
) -> None:
    assert (await register(callers, rules, job))[0] == status
    assert (await callers.get(f"/v1/job/{job['ID']}")).status == (200 if status == 200 else 404)


async def test_a_refusal_says_which_part_of_the_job_needs_which_right(callers: Callers) -> None:
    assert await register(callers, SUBMIT, mounting()) == (
        403,
        'Permission denied: group "group" mounts the host volume "data" ("d"), which needs host_volume:mount-readwrite',
    )


async def test_a_plan_mounts_nothing_and_needs_no_such_right(callers: Callers) -> None:
    secret = await callers.secret_for(SUBMIT)
    answer = await callers.put("/v1/job/web/plan", {"Job": mounting()}, token=secret)
    assert answer.status == 200, answer.text


async def test_to_override_policies_is_a_right(callers: Callers) -> None:
    assert (await register(callers, SUBMIT, job_document(), PolicyOverride=True))[0] == 403
    assert (await register(callers, OVERRIDE, job_document(), PolicyOverride=True))[0] == 200
    secret = await callers.secret_for(SUBMIT)
    plan = {"Job": job_document(), "PolicyOverride": True}
    assert (await callers.put("/v1/job/web/plan", plan, token=secret)).status == 403


async def test_a_revert_needs_what_the_version_contains_and_does_not_say_what_that_is(callers: Callers) -> None:
    await callers.put("/v1/jobs", {"Job": mounting()})
    await callers.put("/v1/jobs", {"Job": job_document("web")})
    body = {"JobID": "web", "JobVersion": 0}
    refused = await callers.put("/v1/job/web/revert", body, token=await callers.secret_for(SUBMIT))
    assert (refused.status, refused.text) == (403, "Permission denied")
    assert (await callers.get("/v1/job/web")).json["Version"] == 1
    allowed = await callers.put("/v1/job/web/revert", body, token=await callers.secret_for(SUBMIT + WRITE_DATA))
    assert allowed.status == 200, allowed.text


async def test_a_namespace_without_rights_answers_alike_whether_it_exists_or_not(callers: Callers) -> None:
    await callers.put("/v1/namespace", {"Name": "prod"})
    secret = await callers.secret_for(SUBMIT)
    answers = [
        await callers.put("/v1/jobs", {"Job": job_document(Namespace=name)}, token=secret) for name in ("prod", "none")
    ]
    assert {(answer.status, answer.text) for answer in answers} == {(403, "Permission denied")}


@pytest.mark.parametrize("asked", ["register", "dispatch", "scale", "launch", "revert"])
async def test_management_goes_on_while_registrations_are_disabled(callers: Callers, asked: str) -> None:
    await callers.put("/v1/jobs", {"Job": job_document("web", Type="service")})
    await callers.put("/v1/jobs", {"Job": job_document("web", Type="service", Priority=60)})
    await callers.put("/v1/jobs", {"Job": job_document("batch", ParameterizedJob={"Payload": "optional"})})
    periodic = {"Enabled": True, "Spec": "0 0 1 1 *", "SpecType": "cron"}
    await callers.put("/v1/jobs", {"Job": job_document("cron", Periodic=periodic)})
    await callers.put("/v1/operator/scheduler/configuration", {"RejectJobRegistration": True})
    path, body = {
        "register": ("/v1/jobs", {"Job": job_document("new")}),
        "dispatch": ("/v1/job/batch/dispatch", {}),
        "scale": ("/v1/job/web/scale", {"Count": 1, "Target": {"Group": "group"}}),
        "launch": ("/v1/job/cron/periodic/force", {}),
        "revert": ("/v1/job/web/revert", {"JobID": "web", "JobVersion": 0}),
    }[asked]
    refused = await callers.put(path, body, token=await callers.secret_for(SUBMIT))
    assert (refused.status, "disabled by the scheduler configuration" in refused.text) == (403, True)
    allowed = await callers.put(path, body)
    assert allowed.status == 200, allowed.text


async def test_a_job_that_names_no_pool_gets_that_of_its_namespace(callers: Callers) -> None:
    await callers.put("/v1/node/pool/gpu", {"Name": "gpu"})
    pools = {"Default": "gpu", "Allowed": []}
    stored = await callers.put("/v1/namespace", {"Name": "prod", "NodePoolConfiguration": pools})
    assert stored.status == 200, stored.text
    job = job_document("web", Namespace="prod")
    for path, body in (("/v1/jobs", {"Job": job}), ("/v1/job/web/plan?namespace=prod", {"Job": job})):
        answer = await callers.put(path, body)
        assert answer.status == 200, answer.text
    assert (await callers.get("/v1/job/web?namespace=prod")).json["NodePool"] == "gpu"
    assert (await callers.get("/v1/namespace/prod")).json["NodePoolConfiguration"] == pools | {"Denied": None}
    refused = await callers.put("/v1/jobs", {"Job": job | {"NodePool": "default"}})
    assert 'node pool "default", which is not allowed in namespace "prod"' in refused.text
    wrong = await callers.put("/v1/namespace", {"Name": "x", "NodePoolConfiguration": {"Allowed": [], "Denied": []}})
    assert (wrong.status, "not both" in wrong.text) == (400, True)
