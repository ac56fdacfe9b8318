"""Tokens and policies change while servers are killed (SIGKILL) and frozen.

Clients make, change, revoke and use tokens through all three servers, put, delete and use policies, and make, change
and delete roles, login methods and binding rules. What they were answered must have an order
(`yurt.testing.histories.acl`): after a revocation was acknowledged no server that performs consistent reads accepts the
token, and an acknowledged token is never refused. At the end every server is asked for each object once more, by the
state that it has itself.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from yurt.testing.agent import ApiFailure, wait_for
from yurt.testing.histories.acl.auth_methods import prerequisites
from yurt.testing.histories.clients import LoadShape
from yurt.testing.histories.faults import LeaderFaults, leader_faults, server_kills
from yurt.testing.histories.kinds import PreparedRequest
from yurt.testing.histories.programs import RequestProgram, acl_kinds, run_program
from yurt.testing.histories.report import HistoryReport
from yurt.testing.nightly import cases, is_nightly, seed
from yurt.testing.real_cluster import RealCluster, real_cluster

OPERATIONS = cases(3_000, 50_000)
FAULTS_MIN = 3
"""Each server is killed once, or each kind of fault of a leader happens once; requests go on until then."""
FAULT_EVERY_S = 8.0 if is_nightly() else 3.0
WIDE = LoadShape(lanes=8, width=6, bursts=10)
SETTINGS = {"acl": {"enabled": True}, "limits": {"http_max_conns_per_client": 0}}
"""All requests come from one address."""


def bootstrap(cluster: RealCluster) -> str:
    """Make the first token and have every agent show it; its secret."""

    def made() -> str:
        try:
            return str(cluster.wait_leader().call("POST", "/v1/acl/bootstrap")["SecretID"])
        except (OSError, ApiFailure):
            return ""

    secret = wait_for("the first token", made)
    for agent in cluster.agents:
        agent.token = secret

    def is_stored(row: PreparedRequest) -> bool:
        try:
            cluster.wait_leader().call(row.method, row.path, json.loads(row.body or b"null"))
        except (OSError, ApiFailure):
            return False
        return True

    for each in prerequisites():
        wait_for(each.path, partial(is_stored, each))
    return secret


async def run(cluster: RealCluster, faults: LeaderFaults, number: int) -> HistoryReport:
    token = cluster.servers[0].token
    program = RequestProgram(
        seed=seed(number), operations=OPERATIONS, shape=WIDE, kinds=tuple(acl_kinds()), token=token
    )
    addresses = [each.address for each in cluster.servers]
    report = await run_program(program, addresses, settle=faults.settle, until=lambda: len(faults.done) >= FAULTS_MIN)
    print(f"faults: {', '.join(faults.done)}", report, report.outcomes, sep="\n")
    return report


async def test_tokens_and_policies_outlive_kills_of_every_server_in_turn(tmp_path: Path) -> None:
    with real_cluster(tmp_path, settings=SETTINGS) as cluster:
        bootstrap(cluster)
        with server_kills(cluster, every_s=FAULT_EVERY_S) as kills:
            report = await run(cluster, kills, 23)
    assert len(kills.done) >= FAULTS_MIN
    assert report.is_clean, str(report)


async def test_tokens_and_policies_outlive_leaders_that_are_killed_and_frozen(tmp_path: Path) -> None:
    with real_cluster(tmp_path, settings=SETTINGS) as cluster:
        bootstrap(cluster)
        with leader_faults(cluster, every_s=FAULT_EVERY_S) as faults:
            report = await run(cluster, faults, 24)
    assert len(faults.done) >= FAULTS_MIN
    assert report.is_clean, str(report)
