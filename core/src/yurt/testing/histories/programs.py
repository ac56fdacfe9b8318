"""Seeded random programs of concurrent requests against agents, and the verdict on the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from yurt.testing.histories.acl.auth_methods import AuthMethodKind
from yurt.testing.histories.acl.policies import PolicyKind
from yurt.testing.histories.acl.roles import binding_rule_kind, role_kind
from yurt.testing.histories.acl.tokens import TokenKind
from yurt.testing.histories.clients import Clients, LoadShape
from yurt.testing.histories.configurations import AutopilotKind, ConfigurationKind
from yurt.testing.histories.csi_volumes import CsiVolumeKind
from yurt.testing.histories.deployment_requests import DeploymentKind
from yurt.testing.histories.dispatches import DispatchKind
from yurt.testing.histories.documents import NamespaceKind, NodePoolKind
from yurt.testing.histories.evaluations import EvaluationKind
from yurt.testing.histories.evidence import evidence_of
from yurt.testing.histories.host_volumes import HostVolumeKind
from yurt.testing.histories.job_requests import JobKind
from yurt.testing.histories.kinds import Kind
from yurt.testing.histories.nodes import NodeKind
from yurt.testing.histories.periodics import PeriodicKind
from yurt.testing.histories.report import SHOWN_MAX, HistoryReport, outcomes_text, report_on
from yurt.testing.histories.variables import VariableKind


class RequestProgram(NamedTuple):
    """The requests to send, at least `operations`; a seed gives the same ones as long as the answers agree."""

    seed: int
    operations: int
    shape: LoadShape = LoadShape()
    node_id: str = ""
    """A node whose eligibility and drain are changed too."""
    kinds: tuple[Kind, ...] = ()
    """Instead of all."""
    token: str = ""
    """The secret of a management token, where access control is on."""


def all_kinds(node_id: str = "") -> list[Kind]:
    """Every kind of object; most requests go to jobs and variables."""
    kinds: list[Kind] = [
        JobKind(), VariableKind(), DispatchKind(), JobKind(), NamespaceKind(), VariableKind(), NodePoolKind(),
        JobKind(), DeploymentKind(), VariableKind(), ConfigurationKind(), PeriodicKind(),
        JobKind(), VariableKind(), PeriodicKind(), EvaluationKind(), CsiVolumeKind(),
        AutopilotKind(),
    ]  # fmt: skip
    return [*kinds, NodeKind(node_id), HostVolumeKind()] if node_id else kinds


def acl_kinds() -> list[Kind]:
    """The kinds of access control, for agents with access control that have carried out `prerequisites`."""
    return [TokenKind(), PolicyKind(), AuthMethodKind(), role_kind(), binding_rule_kind()]


async def run_program(
    program: RequestProgram,
    addresses: Sequence[str],
    *,
    settle: Callable[[], None] | None = None,
    until: Callable[[], bool] = lambda: True,
) -> HistoryReport:
    """Send the program to the agents, read every object from each agent after `settle`, and check the history.

    More requests than the program's follow until `until` is true, as when enough faults have happened.
    `settle` returns when every agent has caught up with all others; without it only the objects' last reads count.
    """
    kinds = program.kinds or all_kinds(program.node_id)
    clients = Clients(addresses, kinds, seed=program.seed, shape=program.shape, token=program.token)
    await clients.run(program.operations, until=until)
    if settle is not None:
        await asyncio.to_thread(settle)
        await clients.read_everywhere()
    report = report_on(clients.recorded)
    evidence = [await evidence_of(each, addresses, program.token) for each in report.unexplained[:SHOWN_MAX]]
    return report._replace(seed=program.seed, outcomes=outcomes_text(clients.outcomes), evidence="\n\n".join(evidence))
