"""The servers over HTTP: who they are, what operators change about them, and whether all are well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from yurt.http.cluster import Joined
from yurt.sdk.value import replace
from yurt.structs.member import FAILED, LEFT
from yurt.structs.rules import RULES_VERSION
from yurt.testing.fake_cluster import FakeCluster, member
from yurt.testing.http_api import Api, serving

MEMBERS = (
    member("far", region="mars"),
    member("srv2", status=FAILED),
    member("srv3", status=LEFT),
    member("test", rpc_addr="127.0.0.1:4647"),
)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(*MEMBERS)


@pytest.fixture
async def api(cluster: FakeCluster) -> AsyncIterator[Api]:
    async with serving(cluster=cluster) as found:
        yield found


async def test_members_are_shown_as_nomad_shows_them(api: Api) -> None:
    answer = (await api.get("/v1/agent/members")).json
    assert [(row["Name"], row["Status"]) for row in answer["Members"]] == [
        ("far.mars", "alive"),
        ("srv2.global", "failed"),
        ("srv3.global", "left"),
        ("test.global", "alive"),
    ]
    row = answer["Members"][1]
    assert (row["Addr"], row["Port"]) == ("srv2", 4648)
    assert row["Tags"] == {
        "build": "2.0.6", "dc": "dc1", "expect": "3", "http_addr": "srv2:4646", "port": "4647",
        "raft_vsn": "3", "region": "global", "role": "nomad", "rpc_addr": "srv2",
        "rules": str(RULES_VERSION), "vsn": "1", "yurt": "0.1.0",
    }  # fmt: skip


async def test_a_server_alone_says_which_rules_it_applies() -> None:
    async with serving() as alone:
        (own,) = (await alone.get("/v1/agent/members")).json["Members"]
    assert own["Tags"]["rules"] == str(RULES_VERSION)


async def test_a_certificate_that_ends_is_a_tag_and_a_problem_of_the_overview(api: Api, cluster: FakeCluster) -> None:
    ends = int(api.server.replica.env.now()) // 1_000_000_000 + 86_400
    far, server, gone, own = MEMBERS
    told = {"certificate_ends": ends, "authority_ends": ends * 2}
    alive = replace(server, status="alive", **told)
    cluster.fixed = (replace(far, **told), alive, replace(gone, **told), own)
    tags = (await api.get("/v1/agent/members")).json["Members"][1]["Tags"]
    assert (tags["certificate_ends"], tags["authority_ends"]) == (str(ends), str(ends * 2))

    found = (await api.get("/v1/yurt/overview?namespace=*")).json["Attention"]
    assert [(each["Kind"], each["ID"], each["Status"]) for each in found] == [("server", "srv2.global", "expiring")]


async def test_the_agent_knows_regions_peers_and_counts(api: Api) -> None:
    assert (await api.get("/v1/regions")).json == ["global", "mars"]
    assert (await api.get("/v1/status/peers")).json == ["127.0.0.1:4647", "srv2:4647"]
    stats = (await api.get("/v1/agent/self")).json["stats"]
    assert stats["serf"] == {"failed": "1", "left": "1", "members": "4"}
    assert stats["nomad"]["known_regions"] == "2"
    names = {row["Name"]: row["Value"] for row in (await api.get("/v1/metrics")).json["Gauges"]}
    assert names["nomad.nomad.members.alive"] == 4.0


async def test_servers_are_joined_and_problems_are_told(api: Api, cluster: FakeCluster) -> None:
    assert (await api.put("/v1/agent/join?address=a:1&address=b")).json == {
        "error": "",
        "num_joined": 1,
        "warning": "",
    }
    assert cluster.asked == [("join", "a:1", "b")]
    cluster.joined = Joined(problems=("a:1: it cannot be reached",))
    answer = (await api.put("/v1/agent/join?address=a:1")).json
    assert answer["error"] == "1 error(s) occurred:\n* a:1: it cannot be reached"
    assert (await api.put("/v1/agent/join")).status == 400


async def test_a_server_is_forced_out(api: Api, cluster: FakeCluster) -> None:
    assert (await api.put("/v1/agent/force-leave?node=srv2.global")).status == 200
    assert (await api.put("/v1/agent/force-leave?node=srv2.global&prune=1")).status == 200
    assert cluster.asked == [("force_leave", "srv2.global", False), ("force_leave", "srv2.global", True)]
    unknown = await api.put("/v1/agent/force-leave?node=x")
    assert (unknown.status, unknown.text) == (200, "")
    missing = await api.put("/v1/agent/force-leave")
    assert (missing.status, missing.text) == (400, "missing node to force leave")


async def test_the_servers_that_keep_the_log_are_listed_and_removed(api: Api, cluster: FakeCluster) -> None:
    answer = (await api.get("/v1/operator/raft/configuration")).json
    assert [(row["Node"], row["Leader"], row["Voter"]) for row in answer["Servers"]] == [
        ("srv2.global", False, True),
        ("test.global", True, True),
    ]
    assert (await api.call("DELETE", "/v1/operator/raft/peer?id=id-srv2.global")).status == 200
    assert cluster.asked == [("remove", "id-srv2.global")]
    missing = await api.call("DELETE", "/v1/operator/raft/peer")
    assert (missing.status, missing.text) == (400, "Must specify the peer's ID to remove")
    assert (await api.call("DELETE", "/v1/operator/raft/peer?id=x")).status == 500


async def test_leadership_is_transferred(api: Api) -> None:
    answer = (await api.put("/v1/operator/raft/transfer-leadership?id=id-test.global")).json
    assert (answer["From"]["Node"], answer["To"]["Node"], answer["Noop"]) == ("srv2.global", "test.global", False)
    missing = await api.put("/v1/operator/raft/transfer-leadership")
    assert (missing.status, missing.text) == (400, "must specify id or address")


async def test_health_counts_the_servers_that_are_well(api: Api) -> None:
    answer = await api.get("/v1/operator/autopilot/health")
    assert answer.status == 429
    found = answer.json
    assert (found["Healthy"], found["FailureTolerance"]) == (False, 0)
    assert found["Leader"] == "id-test.global"
    assert {row["Name"]: row["Healthy"] for row in found["Servers"]} == {
        "srv2.global": False,
        "srv3.global": False,
        "test.global": True,
    }


async def test_a_server_that_still_joins_is_no_voter_and_changes_no_health(api: Api, cluster: FakeCluster) -> None:
    cluster.learners = ("srv2.global",)
    rows = (await api.get("/v1/operator/raft/configuration")).json["Servers"]
    assert [(row["Node"], row["Voter"]) for row in rows] == [("srv2.global", False), ("test.global", True)]
    answer = await api.get("/v1/operator/autopilot/health")
    assert (answer.status, answer.json["Healthy"], answer.json["Voters"]) == (200, True, ["id-test.global"])


async def test_how_servers_mind_themselves_is_stored_and_checked(api: Api) -> None:
    config = (await api.get("/v1/operator/autopilot/configuration")).json
    assert (config["LastContactThreshold"], config["ServerStabilizationTime"]) == ("200ms", "10s")
    changed = config | {"CleanupDeadServers": False, "ServerStabilizationTime": "1m30s"}
    answer = await api.put("/v1/operator/autopilot/configuration?cas=0", changed)
    assert answer.json is True and answer.index > 0
    after = (await api.get("/v1/operator/autopilot/configuration")).json
    assert (after["CleanupDeadServers"], after["ServerStabilizationTime"]) == (False, "1m30s")
    assert after["ModifyIndex"] == answer.index
    assert (await api.put("/v1/operator/autopilot/configuration?cas=0", changed)).json is False


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"LastContactThreshold": "soon"}, 'LastContactThreshold: "soon" is not a valid duration'),
        ({"EnableRedundancyZones": True}, "Nomad Enterprise"),
        ({"MinQuorum": -1}, "must not be negative"),
        ({"LastContactThreshold": "1" * 1_000_000 + "s"}, "is not a valid duration"),
        ([], "AutopilotConfiguration: expected object"),
        (b"null", "AutopilotConfiguration: expected object, got null"),
    ],
)
async def test_a_configuration_that_cannot_be_is_refused(api: Api, body: Any, text: str) -> None:
    answer = await api.put("/v1/operator/autopilot/configuration", body)
    assert answer.status == 400 and text in answer.text
