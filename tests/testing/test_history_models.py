"""The models of objects explain what a server answers when nothing overlaps, and reject every race that was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from yurt.server.config import AclConfig
from yurt.testing.histories import configurations, csi_volumes, dispatches, documents, jobs, variables
from yurt.testing.histories.acl import policies, roles, tokens
from yurt.testing.histories.acl.auth_methods import prerequisites
from yurt.testing.histories.checker import check
from yurt.testing.histories.clients import Clients, LoadShape, Recorded
from yurt.testing.histories.configurations import ConfigurationModel
from yurt.testing.histories.csi_volumes import CsiVolumeModel
from yurt.testing.histories.dispatches import Dispatched, DispatchModel
from yurt.testing.histories.documents import DocumentModel
from yurt.testing.histories.history import History, Operation, Reply, Request
from yurt.testing.histories.indexes import index_faults
from yurt.testing.histories.job_requests import JobKind
from yurt.testing.histories.jobs import AcceptedWrite, JobModel, SeenVersion, Version
from yurt.testing.histories.programs import acl_kinds, all_kinds
from yurt.testing.histories.report import report_on
from yurt.testing.histories.variables import VariableModel
from yurt.testing.http_api import serving

KINDS = {kind.name: kind for kind in all_kinds()}
OPERATIONS = 150
CREATED = (jobs.Register("first", (1, 1)), Reply(200, 5, AcceptedWrite(5)))


def overlapping(
    before: Sequence[tuple[Request, Reply]], at_once: Sequence[tuple[Request, Reply]],
    after: Sequence[tuple[Request, Reply]] = (),
) -> History:  # fmt: skip
    """Operations one after another, then some at the same moment, then some one after another."""
    rows = [(pair, at * 10, at * 10 + 5) for at, pair in enumerate(before)]
    rows += [(pair, 10_000, 20_000) for pair in at_once]
    rows += [(pair, 30_000 + at * 10, 30_005 + at * 10) for at, pair in enumerate(after)]
    return tuple(
        Operation(at, at, "x", request, begin, end, answer) for at, ((request, answer), begin, end) in enumerate(rows)
    )


def seen(number: int, at: int, mark: str, counts: tuple[int, int], *, stop: bool = False) -> Reply:
    return Reply(200, at, SeenVersion(Version(number, at, mark, counts, stop)))


MADE = (tokens.PutToken("a"), Reply(200, 5, tokens.ShownToken(5, 5, "a")))
ROLE = (roles.CreateRow("a"), Reply(200, 5, roles.AclRow("r1", 5, 5, "a")))
ROLES, RULES = roles.RowsModel(is_named=True), roles.RowsModel(is_named=False)
RACES: dict[str, tuple[Any, History]] = {
    "two registrations that enforce index 0 win": (JobModel(), overlapping([], [
        (jobs.Register("a", (1, 1), enforce=0), Reply(200, 5, AcceptedWrite(5))),
        (jobs.Register("b", (1, 1), enforce=0), Reply(200, 6, AcceptedWrite(6))),
    ])),
    "a scale undoes a stop": (JobModel(), overlapping([CREATED], [
        (jobs.DeregisterRequest(), Reply(200, 6, AcceptedWrite(6))),
        (jobs.Scale("a", 3), Reply(200, 7, AcceptedWrite(7))),
    ], [(jobs.ReadJob(), seen(2, 7, "first", (3, 1)))])),
    "a purged job comes back": (JobModel(), overlapping([CREATED], [
        (jobs.DeregisterRequest(purge=True), Reply(200, 6, AcceptedWrite(6))),
        (jobs.Scale("a", 3), Reply(200, 7, AcceptedWrite(7))),
    ])),
    "scales of two groups lose one": (JobModel(), overlapping([CREATED], [
        (jobs.Scale("a", 3), Reply(200, 6, AcceptedWrite(6))),
        (jobs.Scale("b", 4), Reply(200, 7, AcceptedWrite(7))),
    ], [(jobs.ReadJob(), seen(2, 7, "first", (1, 4)))])),
    "a token has two children": (DispatchModel(), overlapping(
        [(dispatches.RegisterParent("p"), Reply(200, 5))], [
        (dispatches.Dispatch("a", "t"), Reply(200, 6, Dispatched("x/dispatch-1", 6, is_new=True))),
        (dispatches.Dispatch("b", "t"), Reply(200, 7, Dispatched("x/dispatch-2", 7, is_new=True))),
    ])),
    "two reverts that enforce the prior version win": (JobModel(), overlapping(
        [CREATED, (jobs.Register("second", (1, 1)), Reply(200, 6, AcceptedWrite(6)))], [
        (jobs.Revert(0, prior=1), Reply(200, 7, AcceptedWrite(7))),
        (jobs.Revert(0, prior=1), Reply(200, 8, AcceptedWrite(8))),
    ])),
    "a variable's write answers another one's items": (VariableModel(), overlapping([], [
        (variables.Put("a"), Reply(200, 5, variables.ShownVariable(5, 5, "b"))),
        (variables.Put("b"), Reply(200, 6, variables.ShownVariable(6, 5, "b"))),
    ])),
    "a registration answers another one's index": (JobModel(), overlapping([], [
        (jobs.Register("a", (1, 1)), Reply(200, 5, AcceptedWrite(6))),
        (jobs.Register("b", (1, 1)), Reply(200, 6, AcceptedWrite(6))),
    ])),
    "a refused write of a variable shows a later state": (VariableModel(), overlapping(
        [(variables.Put("a"), Reply(200, 5, variables.ShownVariable(5, 5, "a")))], [
        (variables.Put("b", cas=0), Reply(409, 7, variables.ShownVariable(0, 0, ""))),
        (variables.Put("c", cas=5), Reply(200, 6, variables.ShownVariable(6, 5, "c"))),
    ])),
    "a deposed leader refuses from a stale state": (JobModel(), overlapping([CREATED], [], [
        (jobs.Register("a", (1, 1), enforce=5), Reply(500, 0, "Enforcing job modify index 5: job does not exist")),
    ])),
    "two changes of autopilot's configuration at one index win": (ConfigurationModel(), overlapping(
        [(configurations.ReadConfiguration(), Reply(200, 5, configurations.ShownConfiguration(5, (1,))))], [
        (configurations.Configure((2,), cas=5), Reply(200, 6, configurations.ConfigurationChange(True))),
        (configurations.Configure((3,), cas=5), Reply(200, 7, configurations.ConfigurationChange(True))),
    ])),
    "a change of autopilot's configuration is undone": (ConfigurationModel(), overlapping(
        [(configurations.ReadConfiguration(), Reply(200, 5, configurations.ShownConfiguration(5, (1,))))], [
        (configurations.Configure((2,), cas=5), Reply(200, 6, configurations.ConfigurationChange(True))),
        (configurations.Configure((3,), cas=5), Reply(200, 6, configurations.ConfigurationChange(False))),
    ], [(configurations.ReadConfiguration(), Reply(200, 7, configurations.ShownConfiguration(5, (1,))))])),
    "a CSI volume is registered after its plugin went": (CsiVolumeModel(), overlapping(
        [(csi_volumes.RegisterPlugin(), Reply(200, 5))], [
        (csi_volumes.PurgePlugin(), Reply(200, 6)),
        (csi_volumes.RegisterVolume("a"), Reply(200, 7)),
    ])),
    "a CSI volume that was deregistered comes back": (CsiVolumeModel(), overlapping(
        [(csi_volumes.RegisterPlugin(), Reply(200, 5)), (csi_volumes.RegisterVolume("a"), Reply(200, 6))], [
        (csi_volumes.DeregisterVolume(), Reply(200, 7)),
    ], [(csi_volumes.ReadCsiVolume(), Reply(200, 8, csi_volumes.ShownCsiVolume(6, 6, "a")))])),
    "a CSI volume is deregistered twice": (CsiVolumeModel(), overlapping(
        [(csi_volumes.RegisterPlugin(), Reply(200, 5)), (csi_volumes.RegisterVolume("a"), Reply(200, 6))], [
        (csi_volumes.DeregisterVolume(), Reply(200, 7)), (csi_volumes.DeregisterVolume(), Reply(200, 8)),
    ])),
    "a CSI volume keeps what another one registered": (CsiVolumeModel(), overlapping(
        [(csi_volumes.RegisterPlugin(), Reply(200, 5))], [
        (csi_volumes.RegisterVolume("a"), Reply(200, 6)), (csi_volumes.RegisterVolume("b"), Reply(200, 7)),
    ], [(csi_volumes.ReadCsiVolume(), Reply(200, 7, csi_volumes.ShownCsiVolume(7, 6, "a")))])),
    "a revoked token is accepted": (tokens.TokenModel(), overlapping([
        MADE, (tokens.RevokeToken(), Reply(200, 6)),
    ], [], [
        (tokens.UseToken(), Reply(200, 6, tokens.ShownToken(5, 5, "a"))),
    ])),
    "a token that was answered is refused": (tokens.TokenModel(), overlapping([MADE], [], [
        (tokens.UseToken(), Reply(403, 0, "Permission denied")),
    ])),
    "a change makes a revoked token valid again": (tokens.TokenModel(), overlapping([MADE], [
        (tokens.RevokeToken(), Reply(200, 6)),
        (tokens.ChangeToken("b"), Reply(200, 7, tokens.ShownToken(7, 5, "b"))),
    ], [(tokens.ReadToken(), Reply(200, 7, tokens.ShownToken(7, 5, "b")))])),
    "a token is revoked twice": (tokens.TokenModel(), overlapping([MADE], [
        (tokens.RevokeToken(), Reply(200, 6)), (tokens.RevokeToken(), Reply(200, 7)),
    ])),
    "a deposed leader accepts a token after its revocation": (tokens.TokenModel(), overlapping([MADE], [
        (tokens.RevokeToken(), Reply(200, 6)),
    ], [(tokens.UseToken(), Reply(403)), (tokens.UseToken(), Reply(200, 5, tokens.ShownToken(5, 5, "a")))])),
    "a policy grants after it was deleted": (policies.PolicyModel(), overlapping(
        [(policies.PutPolicy("a", True), Reply(200, 5)), (policies.PutHolder("h"), Reply(200, 6))], [
        (policies.DeletePolicy(), Reply(200, 7)),
    ], [(policies.UsePolicy(), Reply(200, 9))])),
    "a policy that denies grants": (policies.PolicyModel(), overlapping(
        [(policies.PutPolicy("a", True), Reply(200, 5)), (policies.PutHolder("h"), Reply(200, 6))], [
        (policies.PutPolicy("b", False), Reply(200, 7)),
    ], [(policies.UsePolicy(), Reply(200, 9))])),
    "a policy is granted late": (policies.PolicyModel(), overlapping(
        [(policies.PutHolder("h"), Reply(200, 5)), (policies.PutPolicy("a", True), Reply(200, 6))], [], [
        (policies.UsePolicy(), Reply(403)),
    ])),
    "two roles get one name": (ROLES, overlapping([], [
        (roles.CreateRow("a"), Reply(200, 5, roles.AclRow("r1", 5, 5, "a"))),
        (roles.CreateRow("b"), Reply(200, 6, roles.AclRow("r2", 6, 6, "b"))),
    ])),
    "a change makes a deleted role anew": (ROLES, overlapping([ROLE], [
        (roles.DeleteRow("r1"), Reply(200, 6)),
        (roles.ChangeRow("r1", "b"), Reply(200, 7, roles.AclRow("r1", 7, 5, "b"))),
    ], [(roles.ReadNamed(), Reply(200, 7, roles.AclRow("r1", 7, 5, "b")))])),
    "a change of a binding rule is lost": (RULES, overlapping([ROLE], [
        (roles.ChangeRow("r1", "b"), Reply(200, 6, roles.AclRow("r1", 6, 5, "b"))),
    ], [(roles.ReadRow("r1"), Reply(200, 7, roles.AclRow("r1", 5, 5, "a")))])),
    "a binding rule is deleted twice": (RULES, overlapping([ROLE], [
        (roles.DeleteRow("r1"), Reply(200, 6)), (roles.DeleteRow("r1"), Reply(200, 7)),
    ])),
    "a namespace with a variable is deleted": (DocumentModel(), overlapping(
        [(documents.PutDocument("a"), Reply(200, 5))], [
        (documents.AddDependent(), Reply(200, 6)),
        (documents.DeleteDocument(), Reply(200, 7)),
    ])),
}  # fmt: skip


@pytest.mark.parametrize("race", RACES)
def test_a_race_has_no_order_that_explains_it(race: str) -> None:
    model, history = RACES[race]

    assert not check(model, history).is_linearizable


def test_the_same_requests_are_explained_when_the_answers_are_right() -> None:
    scales = overlapping([CREATED], [
        (jobs.DeregisterRequest(), Reply(200, 7, AcceptedWrite(7))),
        (jobs.Scale("a", 3), Reply(200, 6, AcceptedWrite(6))),
        (jobs.Register("b", (1, 1), enforce=0), Reply(500, 0, "Enforcing job modify index 0: job already exists")),
    ], [(jobs.ReadJob(), seen(2, 7, "first", (3, 1), stop=True))])  # fmt: skip

    assert check(JobModel(), scales).is_linearizable


def test_a_role_that_nobody_was_told_of_takes_its_name_and_is_found_by_it() -> None:
    unknown = Operation(0, 0, "x", roles.CreateRow("a"), 0)
    taken = Operation(1, 1, "x", roles.CreateRow("b"), 10, 20, Reply(400, 0, "role with name x already exists"))
    read = Operation(2, 1, "x", roles.ReadNamed(), 30, 40, Reply(200, 5, roles.AclRow("r1", 5, 5, "a")))
    missing = read._replace(answer=Reply(404))

    assert check(ROLES, (unknown, taken, read)).is_linearizable
    assert check(ROLES, (unknown, missing)).is_linearizable
    assert not check(ROLES, (unknown, taken, missing)).is_linearizable


def test_indexes_that_contradict_real_time_or_each_other_are_found() -> None:
    kind = JobKind()
    apart = overlapping([CREATED, (jobs.DeregisterRequest(), Reply(200, 4, AcceptedWrite(4)))], [])
    shared = overlapping([CREATED], [(jobs.Evaluate(), Reply(200, 5, AcceptedWrite(5)))])
    reads = overlapping([(jobs.ReadJob(), seen(0, 9, "a", (1, 1))), (jobs.ReadJob(), seen(0, 8, "a", (1, 1)))], [])

    assert ["lower index" in each.text for each in index_faults([(kind, apart)])] == [True]
    assert ["two writes" in each.text for each in index_faults([(kind, shared)])] == [True]
    assert ["later read" in each.text for each in index_faults([(kind, reads)])] == [True]
    assert index_faults([(kind, reads[:1])]) == []


@pytest.mark.parametrize("name", KINDS)
async def test_the_model_explains_a_server_whose_requests_do_not_overlap(name: str) -> None:
    async with serving() as api:
        clients = Clients([str(api.client.make_url("")).rstrip("/")], [KINDS[name]], seed=7, shape=LoadShape(1, 1, 30))
        await clients.run(OPERATIONS)

    report = report_on(clients.recorded)

    assert not report.violations, report
    assert report.operations >= OPERATIONS


@pytest.mark.parametrize("kind", acl_kinds(), ids=lambda kind: kind.name)
@pytest.mark.parametrize("width", [1, 6])
async def test_the_models_of_access_control_explain_a_server(kind: Any, width: int) -> None:
    async with serving(acl=AclConfig(enabled=True)) as api:
        made = await api.server.resources.acl_tokens.bootstrap()
        shown = {"X-Nomad-Token": made.secret}
        for each in prerequisites():
            async with api.client.request(each.method, each.path, data=each.body, headers=shown) as answer:
                assert answer.status == 200, await answer.text()
        address, shape = str(api.client.make_url("")).rstrip("/"), LoadShape(1, width, 30)
        clients = Clients([address], [kind], seed=7, shape=shape, token=made.secret)
        await clients.run(OPERATIONS)

    report = report_on(clients.recorded)

    assert report.is_clean, report
    statuses = {outcome.rsplit(" ", 1)[1] for outcome in clients.outcomes}
    assert {"200", "403" if any("Use" in outcome for outcome in clients.outcomes) else "404"} <= statuses


def test_a_report_shows_the_operations_of_a_violation() -> None:
    _, history = RACES["a scale undoes a stop"]

    report = report_on([Recorded(JobKind(), "x", history)])

    assert len(report.violations) == 1
    assert "Scale(group='a', count=3, enforce=None)" in str(report)
