"""`yurt agent -dev` runs job files: placed, started, supervised, logged, restarted, stopped."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
from yurt.testing.agent import Agent, pid_is_alive, raw_exec_job, register, running_agent, wait_for
from yurt.testing.processes import odd_duration

SERVICE = """
variable "message" {
  default = "hello"
}

job "web" {
  group "g" {
    count = 2
    update {
      min_healthy_time = "100ms"
    }
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do echo ${var.message} $NOMAD_ALLOC_INDEX; sleep 0.2; done"]
      }
      resources {
        cpu    = 20
        memory = 20
      }
    }
  }
}
"""


def test_a_job_file_runs_is_followed_and_stops(dev_agent: Agent) -> None:
    path = dev_agent.folder / "web.nomad.hcl"
    path.write_text(SERVICE)

    run = dev_agent.cli("job", "run", str(path))
    allocs = dev_agent.running("web", 2)
    status = dev_agent.cli("job", "status", "web")
    logs = wait_for("a log line", lambda: dev_agent.cli("alloc", "logs", allocs[0]["ID"]).stdout)
    stop = dev_agent.cli("job", "stop", "-detach", "web")

    assert run.returncode == 0, run.stdout + run.stderr
    assert 'finished with status "complete"' in run.stdout
    assert status.returncode == 0
    assert allocs[0]["ID"][:8] in status.stdout
    assert logs.startswith("hello ")
    assert stop.returncode == 0
    dev_agent.running("web", 0)


def test_a_batch_job_completes_with_its_exit_code_and_log(dev_agent: Agent) -> None:
    register(dev_agent, raw_exec_job("once", "/bin/sh", "-c", "echo done; exit 0", kind="batch"))

    def finished() -> dict[str, object] | None:
        return next((alloc for alloc in dev_agent.allocs("once") if alloc["ClientStatus"] == "complete"), None)

    alloc = wait_for("the batch job to complete", finished)
    state = alloc["TaskStates"]["main"]  # type: ignore[index]
    assert (state["State"], state["Failed"]) == ("dead", False)
    assert "Exit Code: 0" in " ".join(event["DisplayMessage"] for event in state["Events"])
    assert dev_agent.cli("alloc", "logs", str(alloc["ID"])).stdout == "done\n"


def test_the_data_of_an_ended_allocation_is_read_as_an_archive(dev_agent: Agent) -> None:
    write = (
        'mkdir "$NOMAD_TASK_DIR/deep"; echo own > "$NOMAD_TASK_DIR/deep/file"; echo key > "$NOMAD_SECRETS_DIR/key"; '
        'echo shared > "$NOMAD_ALLOC_DIR/data/file"; echo gone > "$NOMAD_ALLOC_DIR/tmp/file"; echo logged'
    )
    register(dev_agent, raw_exec_job("archived", "/bin/sh", "-c", write, kind="batch"))

    def ended() -> dict[str, Any] | None:
        return next((each for each in dev_agent.allocs("archived") if each["ClientStatus"] == "complete"), None)

    alloc = wait_for("the batch job to complete", ended)
    with urlopen(f"{dev_agent.address}/v1/client/allocation/{alloc['ID']}/snapshot", timeout=30) as answer:
        kind, data = answer.headers["Content-Type"], answer.read()

    assert kind == "application/octet-stream"
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        files = {each.name: archive.extractfile(each).read() for each in archive if each.isfile()}  # type: ignore[union-attr]
    assert files == {"alloc/data/file": b"shared\n", "main/local/deep/file": b"own\n"}


def test_job_run_tells_why_a_batch_job_failed_and_that_a_finished_one_needs_nothing(dev_agent: Agent) -> None:
    source = """
job "fails" {
  type = "batch"
  group "g" {
    restart { attempts = 0 }
    reschedule { attempts = 0 }
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo oh no >&2; exit 3"]
      }
    }
  }
}
"""
    path = dev_agent.folder / "fails.nomad.hcl"
    path.write_text(source)
    failed = dev_agent.cli("job", "run", str(path))
    status = dev_agent.cli("job", "status", "fails")
    path.write_text(source.replace("exit 3", "exit 0").replace('"fails"', '"works"'))
    worked, again = dev_agent.cli("job", "run", str(path)), dev_agent.cli("job", "run", str(path))

    assert failed.returncode == 1
    assert "failed: Terminated: Exit Code: 3" in failed.stdout and "stderr: oh no" in failed.stdout
    assert "Last Failures" in status.stdout
    assert (worked.returncode, again.returncode) == (0, 0) and "1 allocation complete" in worked.stdout
    assert 'Nothing was to be done: job "works" is unchanged and has run to its end.' in again.stdout


def test_a_crashing_service_is_restarted_and_then_rescheduled(dev_agent: Agent) -> None:
    job = raw_exec_job("crash", "/bin/sh", "-c", "exit 7")
    job["TaskGroups"][0] |= {
        "RestartPolicy": {"Attempts": 1, "Interval": 60_000_000_000, "Delay": 100_000_000, "Mode": "fail"},
        "ReschedulePolicy": {"Delay": 5_000_000_000, "DelayFunction": "constant", "Unlimited": True},
    }
    register(dev_agent, job)

    failed = wait_for(
        "a failed allocation", lambda: [a for a in dev_agent.allocs("crash") if a["ClientStatus"] == "failed"]
    )
    second = wait_for("its replacement", lambda: [a for a in dev_agent.allocs("crash") if a["ID"] != failed[0]["ID"]])

    assert failed[0]["TaskStates"]["main"]["Restarts"] == 1
    tracker = dev_agent.get(f"/v1/allocation/{second[0]['ID']}")["RescheduleTracker"]
    assert tracker["Events"][0]["PrevAllocID"] == failed[0]["ID"]
    dev_agent.call("DELETE", "/v1/job/crash")


def test_changing_the_command_replaces_and_changing_the_count_does_not(dev_agent: Agent) -> None:
    job = raw_exec_job("change", "/bin/sleep", "1000", Update={"MaxParallel": 2, "MinHealthyTime": 100_000_000})
    register(dev_agent, job)
    first = dev_agent.running("change", 1)[0]["ID"]

    job["TaskGroups"][0]["Count"] = 2
    register(dev_agent, job)
    both = {alloc["ID"] for alloc in dev_agent.running("change", 2)}
    job["TaskGroups"][0]["Tasks"][0]["Config"]["args"] = ["1001"]
    register(dev_agent, job)

    def replaced() -> bool:
        live = {a["ID"] for a in dev_agent.allocs("change") if a["ClientStatus"] == "running"}
        return len(live) == 2 and not live & both

    assert first in both
    wait_for("both allocations replaced", replaced)
    dev_agent.call("DELETE", "/v1/job/change")


def test_following_a_log_shows_lines_as_they_come(dev_agent: Agent) -> None:
    register(
        dev_agent,
        raw_exec_job("ticks", "/bin/sh", "-c", "i=0; while true; do i=$((i+1)); echo tick $i; sleep 0.1; done"),
    )
    alloc = dev_agent.running("ticks", 1)[0]["ID"]

    last = wait_for("a line", lambda: dev_agent.cli("alloc", "logs", "-n", "1", alloc).stdout)
    later = wait_for(
        "ten lines", lambda: (out := dev_agent.cli("alloc", "logs", alloc).stdout).count("tick") >= 10 and out
    )

    assert last.startswith("tick ")
    numbers = [int(line.split()[1]) for line in str(later).splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))
    dev_agent.call("DELETE", "/v1/job/ticks")


def test_interrupting_a_dev_agent_leaves_nothing_behind(tmp_path: Path) -> None:
    first, second = odd_duration(), odd_duration()
    with running_agent(tmp_path) as agent:
        register(agent, raw_exec_job("sleepers", "/bin/sh", "-c", f"sleep {first} & sleep {second}; wait", count=5))
        agent.running("sleepers", 5)
        wait_for("all sleepers", lambda: len(sleeping(first) | sleeping(second)) == 10)
        assert agent.process is not None
        family = {child.pid for child in psutil.Process(agent.process.pid).children(recursive=True)}
        groups = {path for path in cgroups() if f"yurt-dev-{agent.process.pid}." in path.name}
        tasks = sleeping(first) | sleeping(second)
        assert agent.interrupt() == 0

    assert len(tasks) == 10
    wait_for("all processes gone", lambda: not [pid for pid in family | tasks if pid_is_alive(pid)])
    assert groups or os.geteuid() != 0, "as root, tasks have cgroups"
    assert not [path for path in groups if path.exists()]


def test_readers_of_streams_see_their_end_when_the_agent_stops(tmp_path: Path) -> None:
    with running_agent(tmp_path) as agent, urlopen(f"{agent.address}/v1/event/stream", timeout=30) as events:
        assert events.readline() == b"{}\n"
        with urlopen(f"{agent.address}/v1/agent/monitor?log_level=trace", timeout=30) as log:
            assert agent.interrupt() == 0

            # An answer without its last chunk raises IncompleteRead.
            assert all(line.startswith(b"{") for line in events.read().splitlines())
            assert json.loads(log.read().splitlines()[-1]) == {"Ended": "the agent is stopping"}


def test_a_dev_agent_that_is_killed_takes_its_tasks_with_it(tmp_path: Path) -> None:
    duration = odd_duration()
    with running_agent(tmp_path) as agent:
        register(agent, raw_exec_job("orphans", "/bin/sleep", duration, count=3))
        agent.running("orphans", 3)
        wait_for("all orphans", lambda: len(sleeping(duration)) == 3)
        tasks = sleeping(duration)
        agent.kill()

    wait_for("all tasks gone", lambda: not [pid for pid in tasks if pid_is_alive(pid)])


def cgroups() -> list[Path]:
    """Every cgroup of this machine; those that go meanwhile may be among them."""
    return [Path(folder, name) for folder, names, _ in os.walk("/sys/fs/cgroup") for name in names]


def sleeping(duration: str) -> set[int]:
    """Processes `sleep DURATION`."""
    lines = ((process.pid, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    return {pid for pid, line in lines if line and line[0].endswith("sleep") and line[-1] == duration}


def test_following_a_log_streams_lines_as_they_are_written(dev_agent: Agent) -> None:
    register(
        dev_agent,
        raw_exec_job("stream", "/bin/sh", "-c", "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.2; done"),
    )
    alloc = dev_agent.running("stream", 1)[0]["ID"]
    command = [*dev_agent.command, "alloc", "logs", "-f", alloc]
    environment = dev_agent.environment()

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=dev_agent.folder) as follow:
        assert follow.stdout is not None
        lines = [follow.stdout.readline().strip() for _ in range(12)]
        follow.terminate()

    assert lines == [f"line {number}" for number in range(1, 13)]
    dev_agent.call("DELETE", "/v1/job/stream")


def test_metadata_that_is_changed_while_the_node_runs_decides_placements(dev_agent: Agent) -> None:
    job = raw_exec_job("needs-rack", "/bin/sleep", "1000")
    job["Constraints"] = [{"LTarget": "${meta.rack}", "RTarget": "r7", "Operand": "="}]
    register(dev_agent, job)
    wait_for("a blocked evaluation", lambda: dev_agent.get("/v1/evaluations?status=blocked"))
    assert dev_agent.allocs("needs-rack") == []

    changed = dev_agent.cli("node", "meta", "apply", "rack=r7")

    assert changed.returncode == 0, changed.stderr
    wait_for(
        "a running allocation", lambda: [a for a in dev_agent.allocs("needs-rack") if a["ClientStatus"] == "running"]
    )
    assert "rack = r7" in dev_agent.cli("node", "meta", "read").stdout
    assert dev_agent.cli("node", "meta", "apply", "-unset", "rack").returncode == 0
    dev_agent.call("DELETE", "/v1/job/needs-rack")


def test_an_artifact_is_there_before_the_task_starts(dev_agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "tool.sh").write_text("#!/bin/sh\necho from the artifact\n")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        job = raw_exec_job("fetches", "/bin/sh", "local/tool.sh", kind="batch")
        job["TaskGroups"][0]["Tasks"][0]["Artifacts"] = [
            {"GetterSource": f"http://127.0.0.1:{site.server_port}/tool.sh"}
        ]
        register(dev_agent, job)
        wait_for("its end", lambda: [a for a in dev_agent.allocs("fetches") if a["ClientStatus"] == "complete"])
        site.shutdown()
        thread.join()
    alloc = dev_agent.allocs("fetches")[0]
    assert "from the artifact" in dev_agent.cli("alloc", "logs", alloc["ID"]).stdout
    types = [event["Type"] for state in alloc["TaskStates"].values() for event in state["Events"]]
    assert "Downloading Artifacts" in types


def test_an_allocation_that_takes_too_much_disk_is_stopped(dev_agent: Agent) -> None:
    script = 'head -c 150000000 /dev/urandom > "$NOMAD_TASK_DIR/big"; exec sleep 300'
    job = raw_exec_job("glutton", "/bin/sh", "-c", script, kind="batch")
    job["TaskGroups"][0] |= {
        "EphemeralDisk": {"SizeMB": 120},
        "RestartPolicy": {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000},
        "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
    }
    register(dev_agent, job)
    failed = wait_for(
        "its end", lambda: [each for each in dev_agent.allocs("glutton") if each["ClientStatus"] == "failed"]
    )[0]
    events = [event["DisplayMessage"] for event in failed["TaskStates"]["main"]["Events"]]
    assert any("of 120 MiB of ephemeral_disk; raise ephemeral_disk" in text for text in events), events


def test_the_use_of_the_host_is_measured_from_the_first_question_on(dev_agent: Agent) -> None:
    stats = dev_agent.get("/v1/client/stats")

    assert len(stats["CPU"]) == psutil.cpu_count()
    measured = [core["User"] + core["System"] + core["Idle"] for core in stats["CPU"]]  # waits for disks are not in it
    assert all(0 <= each <= 101 for each in measured) and any(measured)
    assert stats["CPUTicksConsumed"] >= 0


def test_an_agent_that_is_well_says_so_in_one_line_and_where_its_pages_are(dev_agent: Agent) -> None:
    well = dev_agent.cli("check")
    assert (well.returncode, well.stdout) == (0, "OK - server: ok; 0 peers; client: ok; 1 known server\n")
    assert dev_agent.cli("check", "-min-peers=1").returncode == 1
    assert dev_agent.cli("ui", "-show-url").stdout == f"URL for web UI: {dev_agent.address}/ui/\n"
