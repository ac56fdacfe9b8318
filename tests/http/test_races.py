"""Requests on one object in one burst: each race has one outcome that some order of the requests explains."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, Final

import msgspec
import pytest
from yurt.fsm.acl import tokens
from yurt.storage.memory import MemoryLog
from yurt.structs.commands import AnyCommand, DeleteEvaluations
from yurt.testing.access import Callers, bootstrapped
from yurt.testing.http_api import Api, HttpAnswer, job_document, serving
from yurt.testing.nightly import is_nightly

ROUNDS: Final = 1_000 if is_nightly() else 30
WIDTH: Final = 8
FEW_ROUNDS: Final = ROUNDS // 10
"""Where each round shows the race."""
APPEND_S, STEP_S = 0.005, 0.001


class DiskLog(MemoryLog):
    """Takes as long as a disk: what a burst asks for is decided before any of it is applied, if it is decided early."""

    deleted_at = 0
    """The index of the last deletion of evaluations."""

    async def append(
        self, first_index: int, commands: Sequence[AnyCommand], encoded: Sequence[msgspec.Raw] = ()
    ) -> None:
        await asyncio.sleep(APPEND_S)
        await super().append(first_index, commands, encoded)
        for index, command in enumerate(commands, first_index):
            if isinstance(command, DeleteEvaluations):
                self.deleted_at = index


@pytest.fixture(name="api")
async def running_api() -> AsyncIterator[Api]:
    async with serving(log=DiskLog()) as api:
        yield api


def document(job_id: str, mark: str = "first", **changes: Any) -> dict[str, Any]:
    """A job of two groups, `a` and `b`, that no node runs."""
    group = job_document()["TaskGroups"][0]
    groups = [{**group, "Name": name} for name in ("a", "b")]
    return job_document(job_id, TaskGroups=groups, Meta={"mark": mark}, **changes)


async def register(api: Api, job_id: str, mark: str = "first", **condition: Any) -> HttpAnswer:
    return await api.put("/v1/jobs", {"Job": document(job_id, mark), **condition})


async def scale(api: Api, job_id: str, group: str, count: int) -> HttpAnswer:
    return await api.put(f"/v1/job/{job_id}/scale", {"Target": {"Group": group}, "Count": count})


async def put_variable(api: Api, path: str, mark: str, query: str = "") -> HttpAnswer:
    return await api.put(f"/v1/var/{path}{query}", {"Path": path, "Items": {"mark": mark}})


async def behind_a_write(api: Api, *requests: Coroutine[Any, Any, HttpAnswer]) -> list[HttpAnswer]:
    """Answers of requests that reach the log in this order while it is busy with another write."""
    async with asyncio.TaskGroup() as group:
        group.create_task(put_variable(api, "other", "x"))
        sent = []
        for request in requests:
            await asyncio.sleep(STEP_S)
            sent.append(group.create_task(request))
    return [task.result() for task in sent]


def told(answers: list[HttpAnswer]) -> list[str]:
    return [f"{each.status} {each.text[:120]}" for each in answers]


async def test_one_of_eight_registrations_that_want_a_new_job_wins(api: Api) -> None:
    for number in range(ROUNDS):
        burst = [register(api, f"j{number}", str(at), EnforceIndex=True, JobModifyIndex=0) for at in range(WIDTH)]

        answers = await asyncio.gather(*burst)

        winners = [at for at, each in enumerate(answers) if each.status == 200]
        assert len(winners) == 1, told(answers)
        assert all("job already exists" in each.text for at, each in enumerate(answers) if at not in winners)
        stored = (await api.get(f"/v1/job/j{number}")).json
        assert (stored["Meta"]["mark"], stored["Version"]) == (str(winners[0]), 0)
        assert stored["JobModifyIndex"] == answers[winners[0]].json["JobModifyIndex"]


async def test_a_scale_does_not_undo_a_stop(api: Api) -> None:
    for number in range(ROUNDS):
        await register(api, f"j{number}")
        burst = [api.call("DELETE", f"/v1/job/j{number}"), scale(api, f"j{number}", "a", 5)]

        stopped, _ = await asyncio.gather(*(burst if number % 2 else reversed(burst)))

        assert stopped.status == 200
        assert (await api.get(f"/v1/job/j{number}")).json["Stop"] is True, f"round {number}"


async def test_a_purged_job_does_not_come_back_by_a_scale(api: Api) -> None:
    for number in range(ROUNDS):
        await register(api, f"j{number}")
        burst = [api.call("DELETE", f"/v1/job/j{number}?purge=true"), scale(api, f"j{number}", "a", 5)]

        answers = await asyncio.gather(*(burst if number % 2 else reversed(burst)))

        assert (await api.get(f"/v1/job/j{number}")).status == 404, (number, told(answers))


async def test_scales_of_two_groups_are_both_kept(api: Api) -> None:
    await register(api, "web")
    for number in range(2, ROUNDS + 2):
        answers = await asyncio.gather(scale(api, "web", "a", number), scale(api, "web", "b", number + 1))

        assert [each.status for each in answers] == [200, 200], told(answers)
        groups = (await api.get("/v1/job/web")).json["TaskGroups"]
        assert [group["Count"] for group in groups] == [number, number + 1]


async def test_eight_dispatches_with_one_token_have_one_child(api: Api) -> None:
    await api.put("/v1/jobs", {"Job": document("parent", ParameterizedJob={})})
    for number in range(ROUNDS):
        burst = [api.put(f"/v1/job/parent/dispatch?idempotency_token=t{number}", {}) for _ in range(WIDTH)]

        answers = await asyncio.gather(*burst)

        assert {each.status for each in answers} == {200}, told(answers)
        assert len({(each.json["DispatchedJobID"], each.json["JobCreateIndex"]) for each in answers}) == 1
        assert len((await api.get("/v1/jobs?prefix=parent/dispatch-")).json) == number + 1


async def test_one_of_eight_reverts_that_enforce_the_version_wins(api: Api) -> None:
    for number in range(ROUNDS):
        for mark in ("first", "second"):
            await register(api, f"j{number}", mark)
        body = {"JobID": f"j{number}", "JobVersion": 0, "EnforcePriorVersion": 1}

        answers = await asyncio.gather(*(api.put(f"/v1/job/j{number}/revert", body) for _ in range(WIDTH)))

        assert sorted(each.status for each in answers) == [200] + [500] * (WIDTH - 1), told(answers)
        assert (await api.get(f"/v1/job/j{number}")).json["Version"] == 2


async def test_a_write_of_a_variable_answers_its_own_items(api: Api) -> None:
    for _ in range(ROUNDS):
        answers = await asyncio.gather(*(put_variable(api, "shared", str(at)) for at in range(WIDTH)))

        assert [each.json["Items"]["mark"] for each in answers] == [str(at) for at in range(WIDTH)]
        assert len({each.json["ModifyIndex"] for each in answers}) == WIDTH
        assert [each.index for each in answers] == [each.json["ModifyIndex"] for each in answers]


async def test_a_registration_answers_its_own_index(api: Api) -> None:
    for number in range(ROUNDS):
        answers = await asyncio.gather(*(register(api, "web", f"{number}.{at}") for at in range(WIDTH)))

        versions = (await api.get("/v1/job/web/versions")).json["Versions"]
        stored = {each["Meta"]["mark"]: each["JobModifyIndex"] for each in versions}
        marks = {f"{number}.{at}": each for at, each in enumerate(answers)}
        assert len({each.json["JobModifyIndex"] for each in answers}) == WIDTH
        for mark in marks.keys() & stored.keys():
            assert marks[mark].json["JobModifyIndex"] == marks[mark].json["Index"] == stored[mark]


async def test_a_refused_write_of_a_variable_shows_what_it_was_refused_for(api: Api) -> None:
    for number in range(ROUNDS):
        path = f"v{number}"
        first = await put_variable(api, path, "first")

        refused, removed = await behind_a_write(
            api, put_variable(api, path, "second", "?cas=0"), api.call("DELETE", f"/v1/var/{path}")
        )

        assert removed.status == 204
        if refused.status == 409:
            assert refused.json["Items"] == {"mark": "first"}, f"round {number}"
            assert refused.json["ModifyIndex"] == first.json["ModifyIndex"]
        else:
            assert (refused.status, refused.json["Items"]) == (200, {"mark": "second"})


async def test_a_write_of_a_variable_succeeds_beside_its_deletion(api: Api) -> None:
    for number in range(ROUNDS):
        path = f"v{number}"
        acquire = api.put(f"/v1/var/{path}?lock-acquire", {"Path": path, "Lock": {"TTL": "1h"}})

        written, _ = await asyncio.gather(put_variable(api, path, "first"), api.call("DELETE", f"/v1/var/{path}"))
        locked, _ = await asyncio.gather(acquire, api.call("DELETE", f"/v1/var/{path}"))

        assert (written.status, written.json["Items"]) == (200, {"mark": "first"})
        assert locked.status == 200, locked.text
        assert locked.json["Lock"]["ID"]


async def test_two_purges_of_one_job_both_succeed(api: Api) -> None:
    for number in range(ROUNDS):
        await register(api, f"j{number}")

        answers = await asyncio.gather(*(api.call("DELETE", f"/v1/job/j{number}?purge=true") for _ in range(2)))

        assert [each.status for each in answers] == [200, 200], told(answers)


async def test_a_stop_stops_what_was_registered_before_it_in_the_log(api: Api) -> None:
    for number in range(ROUNDS):
        made, stopped = await behind_a_write(api, register(api, f"j{number}"), api.call("DELETE", f"/v1/job/j{number}"))

        is_stopped = (await api.get(f"/v1/job/j{number}")).json["Stop"]
        assert is_stopped == (stopped.json["Index"] > made.json["Index"]), f"round {number}"


async def test_a_stopped_parent_has_no_later_children(api: Api) -> None:
    for number in range(ROUNDS):
        await api.put("/v1/jobs", {"Job": document(f"p{number}", ParameterizedJob={})})

        stopped, child = await asyncio.gather(
            api.call("DELETE", f"/v1/job/p{number}"), api.put(f"/v1/job/p{number}/dispatch", {})
        )

        if child.status == 200:
            assert child.json["Index"] < stopped.json["Index"], f"round {number}"
        else:
            assert "is stopped" in child.text


async def test_a_tag_without_a_version_names_the_newest_one_in_the_log(api: Api) -> None:
    for number in range(ROUNDS):
        await register(api, f"j{number}")

        scaled, tagged = await behind_a_write(
            api, scale(api, f"j{number}", "a", 5), api.put(f"/v1/job/j{number}/versions/named/tag", {})
        )

        assert (scaled.status, tagged.status) == (200, 200)
        versions = (await api.get(f"/v1/job/j{number}/versions")).json["Versions"]
        assert [bool(each["VersionTag"]) for each in versions] == [
            tagged.index > scaled.index,
            tagged.index < scaled.index,
        ]


async def test_one_of_eight_forced_launches_of_a_second_makes_a_child(api: Api) -> None:
    schedule = {"Specs": ["0 0 30 2 *"], "Enabled": True, "ProhibitOverlap": True}
    for number in range(ROUNDS):
        await api.put("/v1/jobs", {"Job": document(f"p{number}", Periodic=schedule)})

        answers = await asyncio.gather(*(api.put(f"/v1/job/p{number}/periodic/force") for _ in range(WIDTH)))

        assert [each.status for each in answers] == [200] * WIDTH, told(answers)
        children = (await api.get(f"/v1/jobs?prefix=p{number}/periodic-")).json
        assert sum(bool(each.json["EvalID"]) for each in answers) == len(children)
        assert 1 <= len(children) <= 2, "they may take place in two seconds"


async def test_an_evaluation_is_deleted_once(api: Api) -> None:
    for number in range(ROUNDS):
        eval_id = (await api.register(f"j{number}", TaskGroups=[job_document()["TaskGroups"][0] | {"Count": 0}])).json[
            "EvalID"
        ]
        await api.wait_until(f"/v1/evaluation/{eval_id}", lambda row: row["Status"] == "complete")
        await set_pause(api, is_paused=True)
        body = {"EvalIDs": [eval_id]}

        answers = await asyncio.gather(*(api.call("DELETE", "/v1/evaluations", body) for _ in range(2)))

        assert sorted(each.status for each in answers) == [200, 404], told(answers)
        await set_pause(api, is_paused=False)


async def test_no_evaluation_is_deleted_behind_the_end_of_the_brokers_pause(api: Api) -> None:
    for number in range(ROUNDS):
        made = await api.register(f"j{number}", TaskGroups=[job_document()["TaskGroups"][0] | {"Count": 0}])
        path = f"/v1/evaluation/{made.json['EvalID']}"
        await api.wait_until(path, lambda row: row["Status"] == "complete")
        await set_pause(api, is_paused=True)

        resumed, refused = await behind_a_write(
            api,
            set_pause(api, is_paused=False),
            api.call("DELETE", "/v1/evaluations", {"EvalIDs": [made.json["EvalID"]]}),
        )

        assert (resumed.status, refused.status) == (200, 500), refused.text
        assert (await api.get(path)).status == 200


async def set_pause(api: Api, *, is_paused: bool) -> HttpAnswer:
    """Pause the evaluation broker, or end the pause."""
    return await api.put("/v1/operator/scheduler/configuration", {"PauseEvalBroker": is_paused})


@pytest.mark.parametrize("name", ["scheduler", "autopilot"])
async def test_a_refused_configuration_answers_the_index_of_its_own_command(api: Api, name: str) -> None:
    path, body = f"/v1/operator/{name}/configuration", {"SchedulerAlgorithm": "spread", "MinQuorum": 3}
    for _ in range(FEW_ROUNDS):
        answers = await behind_a_write(api, *(api.put(f"{path}?cas=999999", body) for _ in range(WIDTH)))

        assert {each.text.strip() for each in answers if name == "autopilot"} <= {"false"}, told(answers)
        assert all(each.json == {"Index": each.index, "Updated": False} for each in answers if name == "scheduler")
        assert len({each.index for each in answers}) == WIDTH, "a later read shows several of them the same index"


async def test_a_garbage_collection_answers_the_index_of_its_last_command() -> None:
    log, nothing = DiskLog(), [{**job_document()["TaskGroups"][0], "Count": 0}]
    async with serving(log=log) as api:
        for number in range(FEW_ROUNDS):
            eval_id = (await api.register(f"j{number}", TaskGroups=nothing)).json["EvalID"]
            await api.wait_until(f"/v1/evaluation/{eval_id}", lambda row: row["Status"] == "complete")
            others = [put_variable(api, f"v{each}", "x") for each in range(WIDTH)]

            collected, *_ = await behind_a_write(api, api.put("/v1/system/gc"), *others)

            assert collected.index == log.deleted_at, f"round {number}"


async def test_a_failed_deployment_does_not_bring_a_purged_job_back(api: Api) -> None:
    update = {"MaxParallel": 1, "AutoRevert": True}
    for number in range(ROUNDS):
        job_id = f"s{number}"
        await api.put("/v1/jobs", {"Job": document(job_id, "first", Type="service", Update=update)})
        await api.put(f"/v1/job/{job_id}/stable", {"JobID": job_id, "JobVersion": 0, "Stable": True})
        await api.put("/v1/jobs", {"Job": document(job_id, "second", Type="service", Update=update)})
        found = await api.wait_until(f"/v1/job/{job_id}/deployment", lambda row: row and row["JobVersion"] == 1)

        purged, failed = await behind_a_write(
            api, api.call("DELETE", f"/v1/job/{job_id}?purge=true"), api.put(f"/v1/deployment/fail/{found['ID']}")
        )

        assert purged.status == 200
        assert (await api.get(f"/v1/job/{job_id}")).status == 404, (number, failed.text)


async def test_a_lock_without_items_keeps_those_of_a_write_before_it(api: Api) -> None:
    for number in range(ROUNDS):
        path = f"v{number}"
        acquire = api.put(f"/v1/var/{path}?lock-acquire", {"Path": path, "Lock": {"TTL": "1h"}})

        _, locked = await behind_a_write(api, put_variable(api, path, "first"), acquire)

        assert (locked.status, locked.json["Items"]) == (200, {"mark": "first"}), f"round {number}"


@pytest.mark.parametrize("names_it", [False, True])
async def test_a_token_that_is_revoked_while_its_change_arrives_stays_revoked(names_it: bool) -> None:
    async with bootstrapped(log=DiskLog()) as callers:
        for number in range(FEW_ROUNDS):
            token = own_token()
            accessor = f"/v1/acl/token/{token['AccessorID']}"
            assert (await callers.put(accessor, token)).status == 200
            arrives = asyncio.Event()

            changing = asyncio.create_task(
                put_slowly(callers, accessor if names_it else "/v1/acl/token", {**token, "Name": "later"}, arrives)
            )
            await asyncio.sleep(STEP_S * 20)
            revoked = await callers.call("DELETE", accessor)
            arrives.set()
            changed = await changing

            assert (revoked.status, changed.status) == (200, 400), f"round {number}: {changed.text}"
            assert f"it was revoked at index {revoked.index}" in changed.text
            assert (await callers.get("/v1/acl/token/self", token=token["SecretID"])).status == 403


async def test_a_burst_of_changes_does_not_bring_a_revoked_token_back() -> None:
    async with bootstrapped(log=DiskLog()) as callers:
        for number in range(FEW_ROUNDS):
            token = own_token()
            accessor = f"/v1/acl/token/{token['AccessorID']}"
            await callers.put(accessor, token)
            changes = [callers.put(accessor, {**token, "Name": str(at)}) for at in range(WIDTH)]
            burst = [*changes[: WIDTH // 2], callers.call("DELETE", accessor), *changes[WIDTH // 2 :]]

            answers = await asyncio.gather(*burst)

            revoked = answers.pop(WIDTH // 2)
            assert revoked.status == 200
            assert all(each.index < revoked.index for each in answers if each.status == 200), f"round {number}"
            assert (await callers.get("/v1/acl/token/self", token=token["SecretID"])).status == 403


async def test_a_token_that_was_read_before_its_revocation_is_not_written_back() -> None:
    async with bootstrapped() as callers:
        token = own_token()
        accessor = f"/v1/acl/token/{token['AccessorID']}"
        await callers.put(accessor, token)
        read = (await callers.get("/v1/acl/token/self", token=token["SecretID"])).json
        await callers.call("DELETE", accessor)

        refused = await callers.put(accessor, {**read, "Name": "later"})
        recreated = await callers.put(accessor, token)

        assert (refused.status, "repeat the request without ModifyIndex" in refused.text) == (400, True)
        assert (recreated.status, recreated.json["SecretID"]) == (200, token["SecretID"])


async def test_a_token_of_another_cluster_is_taken_without_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "REVOCATIONS_MAX", 2)
    async with bootstrapped() as callers:
        for _ in range(4):
            revoked = own_token()
            await callers.put("/v1/acl/token", revoked)
            await callers.call("DELETE", f"/v1/acl/token/{revoked['AccessorID']}")
        foreign = own_token()

        refused = await callers.put("/v1/acl/token", {**foreign, "ModifyIndex": 1})
        taken = await callers.put("/v1/acl/token", foreign)

        assert refused.status == 400
        assert "it may have been revoked up to index" in refused.text, "which ones were is forgotten"
        assert (taken.status, taken.json["SecretID"]) == (200, foreign["SecretID"])


def own_token() -> dict[str, Any]:
    """A token with ids of its caller's choice."""
    ids = {"AccessorID": str(uuid.uuid4()), "SecretID": str(uuid.uuid4())}
    return {**ids, "Name": "n", "Type": "client", "Policies": ["ops"]}


async def put_slowly(callers: Callers, path: str, body: dict[str, Any], arrives: asyncio.Event) -> HttpAnswer:
    """PUT a body whose second half is sent when `arrives` is set."""
    raw = json.dumps(body).encode()

    async def halves() -> AsyncIterator[bytes]:
        yield raw[: len(raw) // 2]
        await arrives.wait()
        yield raw[len(raw) // 2 :]

    headers = {"X-Nomad-Token": callers.root["SecretID"]}
    async with callers.api.client.put(path, data=halves(), headers=headers) as response:
        return HttpAnswer(response.status, await response.text(), response.headers)
