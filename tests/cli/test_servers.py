"""Commands about the servers: what they print, what they ask, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

PEERS = {
    "Index": 0,
    "Servers": [
        {"Node": "a.global", "ID": "1f", "Address": "a:4647", "Leader": True, "Voter": True, "RaftProtocol": "3"},
        {"Node": "(unknown)", "ID": "2f", "Address": "", "Leader": False, "Voter": False, "RaftProtocol": "3"},
    ],
}


def test_the_servers_that_keep_the_log_are_a_table(api: Any, run: Any) -> None:
    api.answers["/v1/operator/raft/configuration"] = PEERS
    lines = run("operator", "raft", "list-peers")[1].splitlines()
    assert lines[0].split() == ["Node", "ID", "Address", "State", "Voter", "RaftProtocol"]
    assert lines[1].split() == ["a.global", "1f", "a:4647", "leader", "true", "3"]
    assert lines[2].split() == ["(unknown)", "2f", "<none>", "follower", "false", "3"]
    run("operator", "raft", "list-peers", "-stale")
    assert "stale=true" in api.asked[-1][1]
    assert '"Index": 0' in run("operator", "raft", "list-peers", "-json")[1]


def test_a_peer_is_removed_by_id_or_address(api: Any, run: Any) -> None:
    api.answers["/v1/operator/raft/peer"] = b""
    assert run("operator", "raft", "remove-peer", "-peer-id", "1f")[:2] == (0, 'Removed peer with id "1f"\n')
    assert api.asked[-1][:2] == ("DELETE", "/v1/operator/raft/peer?id=1f")
    run("operator", "raft", "remove-peer", "-peer-address", "a:4647")
    assert api.asked[-1][1].endswith("address=a%3A4647")
    code, _, error = run("operator", "raft", "remove-peer")
    assert code == 1 and "list-peers" in error


def test_leadership_is_moved(api: Any, run: Any) -> None:
    path = "/v1/operator/raft/transfer-leadership"
    api.answers[path] = {"From": {}, "To": {"Node": "b.global"}, "Noop": False, "Err": None}
    assert run("operator", "raft", "transfer-leadership", "-peer-id", "2f")[1] == "b.global leads now\n"
    api.answers[path] = {"To": {"Node": "b.global"}, "Noop": True}
    assert run("operator", "raft", "transfer-leadership", "-peer-id", "2f")[1] == "b.global leads already\n"
    assert run("operator", "raft", "transfer-leadership", "-peer-id", "1", "-peer-address", "x")[0] == 1


def test_servers_are_joined(api: Any, run: Any) -> None:
    api.answers["/v1/agent/join"] = {"num_joined": 2, "error": "", "warning": ""}
    assert run("server", "join", "10.0.0.1", "10.0.0.2")[:2] == (0, "Joined 2 servers successfully\n")
    assert api.asked[-1][1] == "/v1/agent/join?address=10.0.0.1&address=10.0.0.2"
    api.answers["/v1/agent/join"] = {"num_joined": 0, "error": "1 error(s) occurred:\n* x: no", "warning": ""}
    code, _, error = run("server", "join", "x")
    assert code == 1 and "* x: no" in error
    assert run("server", "join")[0] == 1


def test_a_server_is_forced_out(api: Any, run: Any) -> None:
    api.answers["/v1/agent/force-leave"] = b""
    assert run("server", "force-leave", "a.global")[:2] == (0, "")
    assert api.asked[-1][:2] == ("PUT", "/v1/agent/force-leave?node=a.global")
    run("server-force-leave", "-prune", "a.global")
    assert api.asked[-1][1].endswith("node=a.global&prune=1")


def test_a_name_that_no_server_has_is_told(api: Any, run: Any) -> None:
    api.answers["/v1/agent/members"] = {"Members": [{"Name": "a.global", "Tags": {"region": "global"}}]}
    api.answers["/v1/agent/force-leave"] = b""
    code, _, error = run("server", "force-leave", "b")
    assert code == 1 and 'no server "b" is known; `yurt server members` lists them' in error
    assert [path for method, path, *_ in api.asked if method == "PUT"] == []
    assert run("server", "force-leave", "a.global")[0] == 0


def test_flags_change_how_servers_mind_themselves_and_keep_the_rest(api: Any, run: Any) -> None:
    config = {"CleanupDeadServers": True, "MaxTrailingLogs": 250, "LastContactThreshold": "200ms", "ModifyIndex": 9}
    api.answers["/v1/operator/autopilot/configuration"] = config
    done = run("operator", "autopilot", "set-config", "-cleanup-dead-servers=false", "-min-quorum=3")
    assert done[:2] == (0, "Configuration updated!\n")
    method, path, _, sent = api.asked[-1]
    assert (method, path) == ("PUT", "/v1/operator/autopilot/configuration?cas=9")
    assert sent == config | {"CleanupDeadServers": False, "MinQuorum": 3}
    for flag in ("-max-trailing-logs=x", "-last-contact-threshold=soon", "-min-quorum="):
        assert run("operator", "autopilot", "set-config", flag)[0] == 1
    assert 'needs a whole number, not "²"' in run("operator", "autopilot", "set-config", "-min-quorum=²")[2]


@pytest.mark.parametrize(("kind", "flags", "named"), [
    ("autopilot", (), "-min-quorum"), ("scheduler", (), "-scheduler-algorithm"),
    ("scheduler", ("-check-index=9",), "-scheduler-algorithm"),
])  # fmt: skip
def test_a_change_without_a_setting_is_refused_and_names_the_settings(
    api: Any, run: Any, kind: str, flags: tuple[str, ...], named: str
) -> None:
    code, out, error = run("operator", kind, "set-config", *flags)
    assert (code, out, api.asked) == (1, "", [])
    assert error.startswith("No setting is given, so nothing was changed; one of these is needed: -") and named in error
    assert "-disable-upgrade-migration" not in error, "it has no effect"


def test_an_empty_index_to_check_is_refused_and_changes_nothing(api: Any, run: Any) -> None:
    """As from `-check-index=$INDEX` without the variable: the change was made without the check."""
    api.answers["/v1/operator/scheduler/configuration"] = {"SchedulerConfig": {}, "Updated": True}
    code, _, error = run("operator", "scheduler", "set-config", "-check-index=", "-scheduler-algorithm=spread")
    assert (code, [method for method, *_ in api.asked]) == (1, ["GET"])
    assert '-check-index needs a whole number, not ""' in error


def test_a_flag_of_nomad_that_has_no_effect_is_no_error(api: Any, run: Any) -> None:
    api.answers["/v1/operator/autopilot/configuration"] = {"ModifyIndex": 9}
    assert run("operator", "autopilot", "set-config", "-disable-upgrade-migration=true")[0] == 0


def test_servers_are_listed_while_none_leads(api: Any, run: Any) -> None:
    tags = {"rpc_addr": "a", "port": "4647", "region": "west"}
    api.answers["/v1/agent/members"] = {"Members": [{"Name": "a.global", "Status": "alive", "Tags": tags}]}
    api.answers["/v1/status/leader"] = (500, "No cluster leader")
    code, out, error = run("server", "members")
    assert code == 0 and "a.global" in out and "false" in out
    assert "No server leads region west now" in error
    api.answers["/v1/status/leader"] = (403, "Permission denied")
    code, out, error = run("server", "members")
    assert code == 1 and "Permission denied" in error
    api.answers["/v1/status/leader"] = lambda query: "a:4647" if query == "region=west" else ""
    code, out, error = run("server", "members")
    assert code == 0 and "true" in out and not error


def test_what_is_not_well_is_a_table_too(api: Any, run: Any) -> None:
    row = {"ID": "1f", "Name": "a.global", "SerfStatus": "failed", "Healthy": False}
    api.answers["/v1/operator/autopilot/health"] = (429, json.dumps({"Healthy": False, "Servers": [row]}))
    code, out, error = run("operator", "autopilot", "health")
    assert code == 1 and not error
    assert "Healthy: false" in out and "a.global" in out
    code, out, _ = run("operator", "autopilot", "health", "-json")
    assert code == 1 and json.loads(out)["Servers"] == [row]
    api.answers["/v1/operator/autopilot/health"] = (429, "too many requests")
    code, _, error = run("operator", "autopilot", "health")
    assert code == 1 and "too many requests" in error


def test_an_agent_without_a_server_is_told_so(api: Any, run: Any) -> None:
    api.answers["/v1/agent/join"] = api.answers["/v1/agent/force-leave"] = (501, "Invalid method")
    for words in (("join", "10.0.0.1"), ("force-leave", "a.global")):
        code, _, error = run("server", *words)
        assert code == 1 and "runs no server; name one that does with -address" in error


def test_every_command_says_what_to_look_at_while_nobody_leads(api: Any, run: Any) -> None:
    api.answers["/v1/jobs"] = api.answers["/v1/nodes"] = (500, "No cluster leader", "no-leader")
    for words in (("job", "status"), ("node", "status")):
        code, _, error = run(*words)
        assert code == 1
        assert error.startswith("Error: No cluster leader\n") and "yurt server members" in error
