"""Commands for who looks for a fault: `operator debug` and `monitor export`."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

NODE_ID = "bbbbbbbb-0000-4000-8000-000000000000"
NODES = [
    {"ID": NODE_ID, "Status": "ready", "NodeClass": "gpu"},
    {"ID": "cccccccc-0000-4000-8000-000000000000", "Status": "ready", "NodeClass": ""},
    {"ID": "dddddddd-0000-4000-8000-000000000000", "Status": "down", "NodeClass": "gpu"},
]
MEMBERS = {
    "ServerRegion": "global",
    "Members": [
        {"Name": "a.global", "Status": "alive", "Tags": {"region": "global", "rpc_addr": "a", "port": "4647"}},
        {"Name": "b.global", "Status": "alive", "Tags": {"region": "global", "rpc_addr": "b", "port": "4647"}},
        {"Name": "c.global", "Status": "failed", "Tags": {"region": "global", "rpc_addr": "c", "port": "4647"}},
        {"Name": "a.mars", "Status": "alive", "Tags": {"region": "mars", "rpc_addr": "m", "port": "4647"}},
    ],
}


@pytest.fixture(autouse=True)
def cluster(api: Any) -> None:
    line = json.dumps({"Data": base64.b64encode(b"a line\n").decode()}).encode()
    api.answers |= {
        "/v1/agent/members": MEMBERS, "/v1/nodes": NODES, "/v1/status/leader": "b:4647", "/v1/agent/monitor": line,
        "/v1/jobs": [], "/v1/agent/host": (403, "Permission denied: enable_debug"),
    }  # fmt: skip


def gathered(folder: Path) -> dict[str, bytes]:
    (path,) = folder.glob("yurt-debug-*.tar.gz")
    with tarfile.open(path) as tar:
        return {each.name.partition("/")[2]: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr]


def test_what_there_is_is_gathered_and_what_is_missing_named(api: Any, run: Any, tmp_path: Path) -> None:
    code, out, err = run("operator", "debug", "-duration=100ms", "-interval=1h", "-output", str(tmp_path))
    files = gathered(tmp_path)
    errors = json.loads(files["errors.json"])
    assert (code, err) == (0, "")
    assert "Servers: (2) [a.global b.global]\nClients: (2) [bbbbbbbb-" in out
    assert f"{len(errors)} of {len(errors) + len(files)} files could not be collected; errors.json says why" in out
    assert files["server/a.global/monitor.log"] == files[f"client/{NODE_ID}/monitor.log"] == b"a line\n"
    assert not any("log_include_location" in path for _, path, _, _ in api.asked)
    assert json.loads(files["nomad/0000/nodes.json"]) == NODES
    assert errors[f"client/{NODE_ID}/agent-host.json"] == "Permission denied: enable_debug"
    asked = [path for _, path, _, _ in api.asked]
    assert any(path.startswith(f"/v1/agent/pprof/goroutine?node_id={NODE_ID}&debug=2") for path in asked)


@pytest.mark.parametrize(("flags", "told"), [
    (("-server-id=leader", "-node-id=none"), "Servers: (1) [b.global]\nClients: (0) []"),
    (("-server-id=a,c", "-node-class=gpu"), f"Servers: (1) [a.global]\nClients: (1) [{NODE_ID}]"),
    (("-server-id=none", "-node-id=bbbb,cccc", "-max-nodes=1"), f"Servers: (0) []\nClients: (1) [{NODE_ID}]"),
])  # fmt: skip
def test_servers_and_nodes_are_chosen(run: Any, tmp_path: Path, flags: tuple[str, ...], told: str) -> None:
    code, out, _ = run("debug", "-duration=1ms", *flags, "-output", str(tmp_path))
    assert (code, told in out) == (0, True), out


def test_what_cannot_be_gathered_is_refused(run: Any, tmp_path: Path) -> None:
    assert "-duration must be a duration such as 30s" in run("operator", "debug", "-duration=soon")[2]
    assert "None of these servers is alive: c" in run("operator", "debug", "-server-id=c")[2]
    file = tmp_path / "file"
    file.write_text("")
    assert "cannot be written" in run("operator", "debug", "-duration=1ms", "-output", str(file))[2]


def test_the_journal_of_an_agent_is_printed(api: Any, run: Any) -> None:
    api.answers["/v1/agent/monitor/export"] = b"a line of old\n"
    assert run("monitor", "export", "-service-name", "yurt", "-logs-since=1h", "-server-id", "b")[:2] == (
        0, "a line of old\n",
    )  # fmt: skip
    assert api.asked[-1][1] == "/v1/agent/monitor/export?service_name=yurt&logs_since=1h&server_id=b&plain=true"
    for flags in ((), ("-on-disk", "-service-name=yurt")):
        assert "one of -service-name and -on-disk" in run("monitor", "export", *flags)[2]


def test_secrets_that_an_older_agent_shows_are_not_gathered(api: Any, run: Any, tmp_path: Path) -> None:
    shown = {"config": {"Plugin": {"docker": {"config": {"auth": {"password": "geheim"}}}}}, "stats": {}}
    api.answers["/v1/agent/self"] = shown
    run("operator", "debug", "-duration=100ms", "-interval=1h", "-output", str(tmp_path))
    about = json.loads(gathered(tmp_path)["cluster/agent-self.json"])
    assert about["config"]["Plugin"]["docker"]["config"]["auth"] == {"password": "<redacted>"}


def test_events_past_logs_and_repeated_profiles_are_gathered_when_asked_for(api: Any, run: Any, tmp_path: Path) -> None:
    api.answers |= {
        "/v1/event/stream": b'{"Index":9,"Events":[]}\n', "/v1/agent/monitor/export": b"an old line\n",
        "/v1/agent/pprof/profile": b"stacks\n",
    }  # fmt: skip
    flags = ("-event-topic=Job,Node:*", "-event-index=5", "-log-lookback=2h", "-pprof-interval=100ms")
    run("operator", "debug", "-duration=250ms", "-node-id=none", "-server-id=a", *flags, "-output", str(tmp_path))

    files = gathered(tmp_path)
    assert files["cluster/eventstream.json"] == b'{"Index":9,"Events":[]}\n'
    assert files["server/a.global/monitor_export.log"] == b"an old line\n"
    assert {"server/a.global/profile_0000.txt", "server/a.global/profile_0001.txt"} <= files.keys()
    asked = [path for _, path, _, _ in api.asked]
    assert "/v1/event/stream?topic=Job&topic=Node%3A%2A&index=5&namespace=%2A" in asked
    assert any("monitor/export?server_id=a.global&service_name=yurt&logs_since=2h" in path for path in asked)


def test_logs_of_files_are_asked_for_and_a_wrong_span_is_refused(api: Any, run: Any, tmp_path: Path) -> None:
    api.answers["/v1/agent/monitor/export"] = b"of a file\n"
    run("debug", "-duration=1ms", "-node-id=none", "-server-id=a", "-log-file-export", "-output", str(tmp_path))

    assert gathered(tmp_path)["server/a.global/monitor_export.log"] == b"of a file\n"
    assert any("on_disk=true" in path for _, path, _, _ in api.asked)
    assert "-log-lookback must be a duration" in run("debug", "-log-lookback=old", "-output", str(tmp_path))[2]


def test_the_lines_of_followed_logs_name_their_source_on_request(api: Any, run: Any, tmp_path: Path) -> None:
    flag = "-log-include-location"
    assert run("monitor", flag)[0] == 0
    assert run("operator", "debug", "-duration=100ms", "-interval=1h", flag, "-output", str(tmp_path))[0] == 0
    logs = [path for _, path, _, _ in api.asked if path.startswith("/v1/agent/monitor?")]
    assert len(logs) > 2 and all("log_include_location=true" in path for path in logs)
