"""Eight processes on two nodes find each other by the variables of torchrun, and start again together."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from yurt.testing.agent import Agent, raw_exec_job, register, wait_for
from yurt.testing.real_cluster import real_cluster

SIZE = 8
SECOND = 10**9
PROGRAM = r"""
import os, pathlib, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
generation = os.environ["YURT_GANG_GENERATION"]
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    store = socket.create_server(("", address[1]))
    members = [store.accept()[0] for _ in range(size - 1)]
    ranks = sorted(int(member.recv(8)) for member in members)
    for member in members:
        member.sendall(b"go")
else:
    while True:
        try:
            store = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.05)
    store.sendall(b"%d" % rank)
    assert store.recv(2) == b"go"
    ranks = []
hosts = open(os.environ["YURT_GANG_HOSTFILE"]).read().split("\n")
print(f"pid {os.getpid()}", flush=True)
print(f"met: generation {generation} rank {rank} of {size} hosts {len(hosts) - 1} ranks {ranks}", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


def gang_job(end: Path) -> dict[str, Any]:
    """A batch job of one gang, spread over the nodes, that ends well once a file is there."""
    job = raw_exec_job("train", sys.executable, "-c", PROGRAM, str(end), kind="batch", count=SIZE)
    job["TaskGroups"][0] |= {
        "Gang": {"Rendezvous": {"Framework": "torch", "Port": "meet"}},
        "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
        "ReschedulePolicy": {
            "Attempts": 3,
            "Interval": 3600 * SECOND,
            "Delay": 5 * SECOND,
            "DelayFunction": "constant",
        },
        "Networks": [{"Mode": "host", "DynamicPorts": [{"Label": "meet"}]}],
        "Spreads": [{"Attribute": "${node.unique.id}", "Weight": 100}],
    }
    return job


def live(agent: Agent) -> list[dict[str, Any]]:
    """The newest allocation of each name."""
    newest = {each["Name"]: each for each in sorted(agent.allocs("train"), key=lambda each: each["CreateIndex"])}
    return [newest[name] for name in sorted(newest)]


def meetings(agent: Agent) -> set[str]:
    """The generations in which all members have said that they met."""
    said = [agent.cli("alloc", "logs", each["ID"]).stdout for each in live(agent)]
    generations = [set(re.findall(r"met: generation (\d+) ", text)) for text in said]
    return set.intersection(*generations) if len(generations) == SIZE else set()


def texts(agent: Agent, alloc_id: str) -> list[str]:
    states = agent.call("GET", f"/v1/allocation/{alloc_id}")["TaskStates"]
    return [event["DisplayMessage"] for event in states["main"]["Events"]]


def test_eight_processes_on_two_nodes_meet_and_meet_again_when_one_is_killed(tmp_path: Path) -> None:
    with real_cluster(tmp_path, servers=1, clients=2) as cluster:
        agent = cluster.servers[0]
        wait_for("two nodes", lambda: [n["Status"] for n in agent.get("/v1/nodes")] == ["ready", "ready"])
        end = tmp_path / "end"
        register(agent, gang_job(end))
        (before,) = wait_for("a first meeting", lambda: meetings(agent))
        members = live(agent)
        assert len({each["NodeID"] for each in members}) == 2
        (first,) = (each for each in members if each["Name"] == "train.g[0]")
        pid = agent.cli("alloc", "logs", first["ID"]).stdout.split()[1]
        os.kill(int(pid), signal.SIGKILL)
        (after,) = wait_for("a second meeting", lambda: meetings(agent) - {before})
        end.touch()
        wait_for("all members to end well", lambda: [e["ClientStatus"] for e in live(agent)] == ["complete"] * SIZE)
        (replacement,) = (each for each in live(agent) if each["Name"] == "train.g[0]")
        head = agent.cli("alloc", "logs", replacement["ID"]).stdout
        assert f"rank 0 of {SIZE} hosts {SIZE} ranks {list(range(1, SIZE))}" in head
        (other,) = (each for each in live(agent) if each["Name"] == "train.g[5]")
        told = texts(agent, other["ID"])
        assert f"Gang generation {after} formed: rank 5 of {SIZE}" in told
        assert any(text.startswith("Gang generation is over: train.g[0]") for text in told)


def test_a_gang_of_which_half_cannot_start_ends_in_bounded_time_and_names_who_is_missing(tmp_path: Path) -> None:
    """The program, as an image that is missing, is there on one of two nodes; no further attempt is allowed."""
    with real_cluster(tmp_path, servers=1, clients=2) as cluster:
        agent = cluster.servers[0]
        nodes = wait_for("two nodes", lambda: [n for n in agent.get("/v1/nodes") if n["Status"] == "ready"][:2])
        wait_for("both", lambda: [n["Status"] for n in agent.get("/v1/nodes")] == ["ready", "ready"])
        program = tmp_path / "programs" / nodes[0]["ID"]
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho started\nsleep 100\n")
        program.chmod(0o755)
        job = raw_exec_job("half", str(program.parent / "${node.unique.id}"), kind="batch", count=2)
        job["TaskGroups"][0] |= {
            "Gang": {"Rendezvous": {"Framework": "torch", "Port": "meet", "Barrier": 3 * SECOND}},
            "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
            "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
            "Networks": [{"Mode": "host", "DynamicPorts": [{"Label": "meet"}]}],
            "Constraints": [{"Operand": "distinct_hosts", "RTarget": "true"}],
        }
        register(agent, job)
        wait_for("both to end", lambda: [each["ClientStatus"] for each in agent.allocs("half")] == ["failed"] * 2)

        by_node = {each["NodeID"]: each for each in agent.allocs("half")}
        able = by_node.pop(nodes[0]["ID"])
        (unable,) = by_node.values()
        assert any("no such file" in text.lower() or "not found" in text.lower() for text in texts(agent, unable["ID"]))
        told = texts(agent, able["ID"])
        assert f"Gang generation is over: {unable['Name']} is failed" in told
        assert any("the gang did not meet within its barrier of 3s: " in text for text in told)
