"""`yurt whatif -from` on an agent that answers wrongly: a clear error with address, path and field, in bounded time."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from yurt.cli.api import connect
from yurt.cli.api.answer_limits import AnswerLimits
from yurt.cli.other_cluster import answers

from tests.cli.damaged_answers import NODE_IDS, answers_with_roles, damaged_answers, whole_answers

LIMITS = AnswerLimits(bytes_max=100_000, seconds_max=0.4)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHANGES = (["-lose", NODE_IDS[0]], ["-add", f"2:{NODE_IDS[1]}"], ["-fail", "meta.rack=r1"], ["-json"])


@pytest.fixture(params=range(7))
def seeds(request: pytest.FixtureRequest) -> range:
    return range(20 * request.param, 20 * request.param + 20)


def test_damaged_answers_are_told_with_address_and_path(api: Any, run: Any, seeds: range) -> None:
    for seed in seeds:
        api.answers = damaged_answers(seed, whole=whole_answers() if seed % 2 else answers_with_roles())
        code, out, err = run("whatif", "-from", api.address, *CHANGES[seed % 4])
        assert code in (0, 1, 2), seed
        assert "Internal error" not in err, (seed, err)
        assert all(each.isprintable() or each == "\n" for each in out + err), seed
        assert code != 1 or f"{api.address}: GET /v1/" in err or "no such node" in err or "no node" in err, (seed, err)


def test_whole_answers_are_read(api: Any, run: Any) -> None:
    api.answers = whole_answers()
    code, out, err = run("whatif", "-from", api.address, "-json")
    found = json.loads(out)
    assert (code, err, found["Warnings"]) == (0, "", [])
    assert [(row["JobID"], row["Running"], row["Waiting"]) for row in found["Jobs"]] == [("train", 2, 1)]


@pytest.mark.parametrize(
    ("path", "answer", "said"),
    [
        ("/v1/jobs", [{"ID": "web\x1b[2J"}], "ID: 'web\\x1b[2J' is not a name"),
        ("/v1/jobs", [{"ID": "web"}, {"ID": "web"}], "twice"),
        ("/v1/jobs", [{"ID": f"j{number}"} for number in range(100_001)], "100001 rows; 100000 are possible"),
        ("/v1/job/web", whole_answers()["/v1/job/train"], "the answer has job train of namespace default"),
        ("/v1/job/web", b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested deeper than 64 levels"),
        ("/v1/job/web", b'{"Version": 99999999999999999999}', "does not fit 64 bits"),
        ("/v1/job/web", b"<html>", "the answer is not JSON"),
        ("/v1/job/web", b"", "the answer is not JSON"),
        ("/v1/job/web", b'{"a":"' + b"x" * 4 * 2**20 + b'"}', "4194312 bytes; 4194304 are possible"),
        ("/v1/jobs", b"[" + b"{}," * 5_000_001 + b"{}]", "about 10000004 values; 10000000 are possible"),
        ("/v1/regions", {"a": 1}, "not a list of names"),
        ("/v1/node/pools", [{"Name": "gpu", "BatchQueue": {"Fifo": {}, "FairShare": {}}}], "node pool gpu: "),
    ],
)
def test_the_field_that_is_wrong_is_named(api: Any, run: Any, path: str, answer: Any, said: str) -> None:
    api.answers = whole_answers() | {path: answer}
    code, _, err = run("whatif", "-from", api.address)
    assert code == 1
    assert f"{api.address}: GET {path}: " in err
    assert said in err


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (("NodeResources", "Cpu", "CpuShares"), -1),
        (("NodeResources", "Cpu", "ReservableCpuCores"), [0, 0]),
        (("NodeResources", "Cpu", "ReservableCpuCores"), [1 << 40]),
        (("NodeResources", "MaxDynamicPort"), 1 << 40),
    ],
)
def test_amounts_that_no_node_has_are_refused(api: Any, run: Any, field: tuple[str, ...], value: Any) -> None:
    api.answers = whole_answers()
    path = f"/v1/node/{NODE_IDS[0]}"
    holder = api.answers[path]
    for name in field[:-1]:
        holder = holder[name]
    holder[field[-1]] = value
    code, _, err = run("whatif", "-from", api.address)
    assert (code, f"GET {path}: Node.{'.'.join(field)}: " in err) == (1, True), err


@pytest.mark.parametrize(
    ("path", "field"),
    [("/v1/acl/token/self", "Roles"), ("/v1/acl/token/self", "Policies"), ("/v1/acl/role/r1", "Policies")],
)
def test_lists_of_rights_that_are_none_are_refused(api: Any, run: Any, path: str, field: str) -> None:
    api.answers = answers_with_roles()
    api.answers[path] |= {field: 5}
    code, _, err = run("whatif", "-from", api.address)
    assert (code, f"GET {path}: {field} is not a list" in err) == (1, True), err


def test_all_answers_together_have_a_largest_size(api: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "READ_BYTES_MAX", 2_000)
    api.answers = whole_answers()
    code, _, err = run("whatif", "-from", api.address)
    assert (code, "all answers together exceed 2000 bytes" in err) == (1, True), err


def test_a_port_beyond_all_ports_is_refused(api: Any, run: Any) -> None:
    api.answers = whole_answers()
    api.answers["/v1/allocations"][0]["AllocatedResources"]["Shared"]["Ports"][0]["Value"] = 1 << 40
    code, _, err = run("whatif", "-from", api.address)
    assert code == 1
    assert ".AllocatedResources.Shared.Ports[0].Value: 1099511627776 is not from 0 to 65535" in err


def test_a_job_that_registration_would_refuse_is_not_scheduled(api: Any, run: Any) -> None:
    api.answers = whole_answers()
    api.answers["/v1/job/web"]["TaskGroups"][0]["Count"] = 10**15
    code, out, err = run("whatif", "-from", api.address, "-json")
    (warning,) = json.loads(out)["Warnings"]
    assert (code, "job default/web is not scheduled" in warning, "job_max_count" in warning) == (0, True, True)
    assert f"Warning: {warning}" in err


def test_nested_problems_of_a_job_are_one_line(api: Any, run: Any) -> None:
    api.answers = whole_answers()
    api.answers["/v1/job/web"]["TaskGroups"][0]["Tasks"][0]["Driver"] = ""
    (warning,) = json.loads(run("whatif", "-from", api.address, "-json")[1])["Warnings"]
    assert warning.endswith("Task group g validation failed: Task t validation failed: Missing task driver"), warning


def test_a_job_that_is_not_scheduled_and_loses_its_node_is_worse(api: Any, run: Any) -> None:
    api.answers = whole_answers()
    api.answers["/v1/job/web"]["TaskGroups"][0]["Count"] = 10**15
    code, out, _ = run("whatif", "-from", api.address, "-lose", NODE_IDS[0], "-json")
    (row,) = [row for row in json.loads(out)["Jobs"] if row["JobID"] == "web"]
    assert (code, row["RunningBefore"], row["Running"], row["Lost"], row["Worse"]) == (2, 2, 1, 1, True)


@pytest.mark.parametrize("state", [{"Stop": True}, {"Status": "dead"}])
def test_a_job_that_has_ended_is_not_warned_of(api: Any, run: Any, state: dict[str, Any]) -> None:
    api.answers = whole_answers()
    api.answers["/v1/job/train"] |= state
    api.answers["/v1/job/train"]["TaskGroups"][0]["Count"] = 10**15
    api.answers["/v1/evaluations"] = []
    assert json.loads(run("whatif", "-from", api.address, "-json")[1])["Warnings"] == []


def test_an_allocation_that_may_not_be_read_is_no_missing_job(api: Any, run: Any) -> None:
    api.answers = whole_answers()
    api.answers["/v1/allocation/00000000-0000-0000-0000-0000000000a1"] = (403, "Permission denied")
    (warning,) = json.loads(run("whatif", "-from", api.address, "-json")[1])["Warnings"]
    assert warning.startswith("1 older version of a job may not be read"), warning


REFUSED_QUOTAS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"Limits": []}, "no limits: give a limit block with a region"),
    ({"Parent": "gone"}, "no top is above it"),
    (
        {"Limits": [{"Region": "global", "RegionLimit": {"Devices": [
            {"Name": "nvidia/gpu", "Count": 4, "Constraints": [{"LTarget": "${device.model}", "RTarget": "x",
                                                               "Operand": "="}]},
        ]}}]},
        "constraint",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("part", "said"), REFUSED_QUOTAS)
def test_a_quota_that_yurt_would_refuse_is_left_out_with_a_warning(
    api: Any, run: Any, part: dict[str, Any], said: str
) -> None:
    api.answers = whole_answers()
    api.answers["/v1/quotas"][0] |= part
    code, out, err = run("whatif", "-from", api.address, "-json")
    assert code == 0, err
    (warning,) = json.loads(out)["Warnings"]
    assert warning.startswith("quota q limits nothing here, since Yurt would refuse it: ")
    assert said in warning


Script = Callable[[socket.socket], None]


def endless_headers(peer: socket.socket) -> None:
    while True:
        peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def endless_chunks(peer: socket.socket) -> None:
    peer.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        peer.sendall(b"400\r\n" + b" " * 0x400 + b"\r\n")


def negative_chunk(peer: socket.socket) -> None:
    peer.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n")
    while True:
        peer.sendall(b" " * 1024)


def slow_body(peer: socket.socket) -> None:
    peer.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
    while peer.send(b" "):
        threading.Event().wait(0.02)


def broken_off(peer: socket.socket) -> None:
    peer.sendall(HEAD + b"Content-Length: 1000\r\n\r\n[")


def redirect(peer: socket.socket) -> None:
    peer.sendall(b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\x1b[2J\r\nContent-Length: 0\r\n\r\n")


def garbage(peer: socket.socket) -> None:
    peer.sendall(b"\x16\x03\x01\x00" * 100)


@pytest.fixture
def scripted() -> Iterator[Callable[[Script], str]]:
    """An agent that answers every request by a script, until its peer goes."""
    server = socket.create_server(("127.0.0.1", 0))
    scripts: list[Script] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                peer, _ = server.accept()
                with peer, suppress(OSError):
                    peer.recv(65536)
                    scripts[0](peer)

    thread = threading.Thread(target=serve)

    def started(script: Script) -> str:
        scripts.append(script)
        thread.start()
        return f"http://127.0.0.1:{server.getsockname()[1]}"

    yield started
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(timeout=5)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (endless_headers, "did not end its answer within 0.4 s"),
        (endless_chunks, "larger than 100000 bytes"),
        (negative_chunk, "larger than 100000 bytes"),
        (slow_body, "did not end its answer within 0.4 s"),
        (broken_off, "No usable answer"),
        (redirect, "redirects to"),
        (garbage, "No usable answer"),
    ],
)
def test_an_answer_without_an_end_is_given_up(
    run: Any, scripted: Callable[[Script], str], monkeypatch: pytest.MonkeyPatch, script: Script, said: str
) -> None:
    monkeypatch.setattr(connect, "OTHER_ANSWERS", LIMITS)
    address = scripted(script)
    code, out, err = run("whatif", "-from", address)
    assert (code, out) == (1, "")
    assert said in err
    assert address in err
    assert "Internal error" not in err
    assert "\x1b" not in err


def test_a_bad_answer_about_the_trace_is_told_too(api: Any, run: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("submit,duration,num_gpus,tenant\n0,60,1,a\n")
    api.answers = whole_answers() | {"/v1/nodes": {"a": "page"}}
    code, _, err = run("whatif", "-from", api.address, "-trace", str(trace))
    assert (code, "GET /v1/nodes: " in err) == (1, True)
