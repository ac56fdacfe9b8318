"""Real agents with the NVIDIA plugin on a fake NVML: what tasks of real drivers see, and what a bad GPU leads to."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, pid_is_alive, raw_exec_job, register, running_agent, wait_for
from yurt.testing.services.engines import PodmanEngine, missing

fake = pytest.importorskip("yurt_device_nvidia.fake", reason="the NVIDIA plugin is not installed")

NO_PODMAN = missing("podman", "runc", "conmon", "busybox")
NVIDIA_MAJOR = 195
NO_RESTART = {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000}
SOON = {"Delay": 5_000_000_000, "DelayFunction": "constant", "Unlimited": True}


def gpu(number: int) -> str:
    return f"GPU-00000001-{number:04x}-4a5b-8c6d-{number:012x}"


def settings(machine: Path, **options: Any) -> dict[str, Any]:
    """The agent's configuration for GPUs of that file."""
    quick = {"health_period": "100ms", "fingerprint_period": "200ms"}
    client = {
        "enabled": True,
        "options": {"driver.raw_exec.enable": "1"},
        "device_health": {"probation": "200ms", "trial": "0s"},
    }
    return {"plugin": {"nvidia": {"config": {"library": f"fake:{machine}", **quick, **options}}}, "client": client}


class Gpus:
    """An agent and the file of its GPUs."""

    def __init__(self, agent: Agent, machine: Path) -> None:
        self.agent = agent
        self.machine = machine
        self.events = 0

    def change(self, number: int, **changes: Any) -> None:
        """Change a card."""
        fake.change(self.machine, lambda state: state["gpus"][number].update(changes))

    def xid(self, number: int, error: int) -> None:
        """Let a card report an error."""
        self.events += 1
        event = {"seq": self.events, "gpu": gpu(number), "kind": "xid", "data": error}
        fake.change(self.machine, lambda state: state["events"].append(event))

    def node(self) -> dict[str, Any]:
        """The agent's node."""
        (stub,) = self.agent.get("/v1/nodes")
        found: dict[str, Any] = self.agent.get(f"/v1/node/{stub['ID']}")
        return found

    def health(self) -> dict[str, str]:
        """Why each device is unhealthy, or nothing."""
        groups = self.node()["NodeResources"]["Devices"]
        return {each["ID"]: each["HealthDescription"] for group in groups for each in group["Instances"]}

    def wait_health(self, number: int, *, is_ill: bool) -> None:
        """Wait until the servers know that a card is unhealthy, or well."""
        wait_for(f"card {number} ill: {is_ill}", lambda: bool(self.health()[gpu(number)]) == is_ill)


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpus]:
    """Eight H100s."""
    folder = tmp_path_factory.mktemp("gpus")
    machine = folder / "machine.json"
    fake.write(machine, fake.layout("h100x8"))
    devices = folder / "dev"
    devices.mkdir()
    if os.geteuid() == 0:
        for name, minor in (
            *((f"nvidia{number}", number) for number in range(8)),
            ("nvidiactl", 255),
            ("nvidia-uvm", 254),
        ):
            os.mknod(devices / name, 0o666 | stat.S_IFCHR, os.makedev(NVIDIA_MAJOR, minor))
    options = settings(machine, device_dir=str(devices), xid_quiet_period="1h")
    with running_agent(folder, extra=options) as agent:
        yield Gpus(agent, machine)


def gpu_job(job_id: str, script: str, *, count: int = 1, driver: str = "raw_exec", **group: Any) -> dict[str, Any]:
    """A job whose task asks for so many GPUs."""
    job = raw_exec_job(job_id, "sh", "-c", script, **group)
    (task,) = job["TaskGroups"][0]["Tasks"]
    task |= {"Driver": driver, "KillTimeout": 200_000_000}
    task["Resources"] |= {"MemoryMB": 32, "Devices": [{"Name": "nvidia/gpu", "Count": count}]}
    return job


def given_to(agent: Agent, alloc: dict[str, Any]) -> list[str]:
    """The devices of an allocation's task."""
    tasks = agent.get(f"/v1/allocation/{alloc['ID']}")["AllocatedResources"]["Tasks"]
    return [each for device in tasks["main"]["Devices"] for each in device["DeviceIDs"]]


def log_of(agent: Agent, alloc: dict[str, Any], word: str) -> str:
    """The task's output, when it has that word."""

    def probe() -> str:
        path = f"/v1/client/fs/cat/{alloc['ID']}?path=alloc/logs/main.stdout.0"
        try:
            with urllib.request.urlopen(agent.address + path, timeout=60) as answer:
                text: str = answer.read().decode()
        except urllib.error.HTTPError:  # nothing is written yet
            return ""
        return text if word in text else ""

    return wait_for(f"{word} in the log", probe)


def events_of(agent: Agent, alloc_id: str) -> str:
    states = agent.get(f"/v1/allocation/{alloc_id}")["TaskStates"] or {}
    return " | ".join(event["DisplayMessage"] for event in states.get("main", {}).get("Events") or ())


def stop(agent: Agent, job_id: str) -> None:
    agent.call("DELETE", f"/v1/job/{job_id}?purge=true")
    wait_for(f"{job_id} to be gone", lambda: not [a for a in agent.get("/v1/allocations") if a["JobID"] == job_id
             and a["ClientStatus"] in ("running", "pending")])  # fmt: skip


def test_the_node_offers_its_gpus_and_says_so_at_the_start(gpus: Gpus) -> None:
    node = gpus.node()
    (group,) = node["NodeResources"]["Devices"]
    (first, *_) = group["Instances"]

    assert (group["Vendor"], group["Type"], group["Name"]) == ("nvidia", "gpu", "NVIDIA H100 80GB HBM3")
    assert [each["ID"] for each in group["Instances"]] == [gpu(number) for number in range(8)]
    assert (group["Attributes"]["memory"]["Int"], group["Attributes"]["memory"]["Unit"]) == (81559, "MiB")
    assert (first["Locality"]["PciBusID"], first["Attributes"]["numa_node"]["Int"]) == ("00000000:19:00.0", 0)
    assert node["Attributes"]["device.nvidia.driver_version"] == "550.54.15"
    told = r"==> Devices:\n +nvidia +8 x NVIDIA H100 80GB HBM3; pretended by fake:"
    wait_for("the first screen", lambda: re.search(told, gpus.agent.log.read_text()))


def test_tasks_see_their_own_gpus_and_no_gpu_is_given_twice(gpus: Gpus) -> None:
    agent = gpus.agent
    register(agent, gpu_job("pair", 'echo "sees $CUDA_VISIBLE_DEVICES"; sleep 100', count=2))
    register(agent, gpu_job("rest", 'echo "sees $NVIDIA_VISIBLE_DEVICES"; sleep 100', count=3))
    pair, rest = agent.running("pair", 1)[0], agent.running("rest", 1)[0]

    assert log_of(agent, pair, "sees").split()[1].split(",") == given_to(agent, pair)
    assert log_of(agent, rest, "sees").split()[1].split(",") == given_to(agent, rest)
    assert len({*given_to(agent, pair), *given_to(agent, rest)}) == 5
    answer = register(agent, gpu_job("much", "sleep 100", count=4))
    blocked = wait_for("a blocked evaluation", lambda: [e for e in agent.get("/v1/evaluations") if e["JobID"] == "much"
                       and e["Status"] == "blocked"])  # fmt: skip
    assert answer["EvalID"]
    stop(agent, "rest")
    assert agent.running("much", 1), blocked
    for job_id in ("pair", "much"):
        stop(agent, job_id)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="isolation takes root on Linux")
@pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed (apt install runc)")
def test_an_exec_task_may_open_its_gpus_and_no_others(gpus: Gpus) -> None:
    """The nodes have NVIDIA's numbers and no driver: opening one that is allowed finds no device behind it."""
    script = "ls /dev | grep nvidia; for n in /dev/nvidia?; do cat $n; done; mknod n c 195 77; cat n; sleep 100"
    agent = gpus.agent
    job = gpu_job("isolated", f"({script}) 2>&1", driver="exec")
    job["TaskGroups"][0]["Tasks"][0]["Config"]["cap_add"] = ["mknod"]
    register(agent, job)
    alloc = agent.running("isolated", 1)[0]
    text = log_of(agent, alloc, "cat: n:")
    (device,) = given_to(agent, alloc)
    number = int(device.split("-")[2], 16)

    assert text.splitlines()[:3] == ["nvidia-uvm", f"nvidia{number}", "nvidiactl"]
    assert f"/dev/nvidia{number}: " in text, "there is no driver behind it, and no refusal before it"
    assert f"/dev/nvidia{number}: Operation not permitted" not in text
    assert "cat: n: Operation not permitted" in text, "the cgroup refuses a node that the task made by itself"
    stop(agent, "isolated")


def test_a_gpu_that_breaks_is_told_and_the_task_moves_as_its_policy_says(gpus: Gpus, tmp_path: Path) -> None:
    agent, folder = gpus.agent, tmp_path
    script = f"while ! [ -e {folder}/$NOMAD_ALLOC_ID ]; do sleep 0.1; done; exit 1"
    job = gpu_job("moves", script, ReschedulePolicy=SOON)
    job["TaskGroups"][0]["RestartPolicy"] = {**NO_RESTART, "Attempts": 3, "Delay": 100_000_000}
    register(agent, job)
    first = agent.running("moves", 1)[0]
    (device,) = given_to(agent, first)
    number = int(device.split("-")[2], 16)
    gpus.xid(number, 79)
    gpus.wait_health(number, is_ill=True)
    wait_for("the holder's event", lambda: "has failed: Xid 79" in events_of(agent, first["ID"]))

    assert agent.get(f"/v1/allocation/{first['ID']}")["ClientStatus"] == "running", "nothing stops a task that goes on"
    wait_for("the node's event", lambda: any("Xid 79" in event["Message"] for event in gpus.node()["Events"]))
    (folder / first["ID"]).touch()
    second = wait_for("a replacement", lambda: [a for a in agent.running("moves", 1) if a["ID"] != first["ID"]])[0]

    assert given_to(agent, second) != [device]
    assert "is unhealthy: Xid 79" in events_of(agent, first["ID"]).split("Task restarting")[-1]
    stop(agent, "moves")


def test_a_gpu_that_falls_off_the_bus_is_unhealthy_alone_and_recovers(gpus: Gpus) -> None:
    before = gpus.health()
    number = next(each for each in range(8) if not before[gpu(each)])
    gpus.change(number, lost=True)
    gpus.wait_health(number, is_ill=True)
    others = {each: reason for each, reason in gpus.health().items() if each != gpu(number) and "Xid" not in reason}
    assert not any(others.values())

    def shown() -> re.Match[str] | None:
        status = gpus.agent.cli("node", "status", "-self").stdout
        return re.search(rf"{gpu(number)} +it does not answer: GPU is lost", status)

    wait_for("the reason", shown)
    gpus.change(number, lost=False)
    gpus.wait_health(number, is_ill=False)

    well = "is healthy again: self-test passed"
    wait_for("the node's event", lambda: any(well in event["Message"] for event in gpus.node()["Events"]))


def states(gpus: Gpus) -> dict[str, str]:
    """The state of each card that `node gpu` shows."""
    rows = json.loads(gpus.agent.cli("node", "gpu", "-self", "-json").stdout)["Devices"]
    return {each["ID"]: each["State"] for each in rows}


def test_a_card_fails_under_a_job_that_moves_and_comes_back_by_probation(gpus: Gpus) -> None:
    agent, before = gpus.agent, states(gpus)
    job = gpu_job("leaves", "sleep 100")
    job["TaskGroups"][0]["Tasks"][0]["Resources"]["Devices"][0]["OnFailure"] = "move"
    register(agent, job)
    first = agent.running("leaves", 1)[0]
    (device,) = given_to(agent, first)
    number = int(device.split("-")[2], 16)
    gpus.change(number, lost=True)

    second = wait_for("it runs elsewhere", lambda: [a for a in agent.running("leaves", 1) if a["ID"] != first["ID"]])[0]
    assert "has failed: it does not answer: GPU is lost" in events_of(agent, first["ID"]), "its task was told"
    assert agent.get(f"/v1/allocation/{first['ID']}")["DesiredStatus"] == "stop"
    assert given_to(agent, second) != [device]
    assert states(gpus) == {**before, device: "failed"}, "the others are as they were"
    register(agent, gpu_job("neighbour", "sleep 100", count=2))
    assert device not in given_to(agent, agent.running("neighbour", 1)[0])
    counted = {
        row["Labels"]["state"]: row["Value"]
        for row in agent.get("/v1/metrics")["Gauges"]
        if row["Name"] == "nomad.nomad.devices"
    }
    assert counted["failed"] == sum(state == "failed" for state in {**before, device: "failed"}.values())

    gpus.change(number, lost=False)
    wait_for("it is well", lambda: states(gpus)[device] == "healthy")
    node = gpus.node()
    (health,) = [
        each["Health"]
        for group in node["NodeResources"]["Devices"]
        for each in group["Instances"]
        if each["ID"] == device
    ]
    ways = [(each["State"], each["Reason"]) for each in health["History"]][-3:]
    assert [state for state, _ in ways] == ["failed", "probation", "healthy"]
    assert ways[-1][1].startswith("self-test passed")
    pinned = gpu_job("again", "sleep 100")
    rule = {"LTarget": "${device.ids}", "Operand": "set_contains_any", "RTarget": device}
    pinned["TaskGroups"][0]["Tasks"][0]["Resources"]["Devices"][0]["Constraints"] = [rule]
    register(agent, pinned)
    assert given_to(agent, agent.running("again", 1)[0]) == [device], "it takes jobs again"
    for job_id in ("leaves", "neighbour", "again"):
        stop(agent, job_id)


def test_two_operators_who_switch_one_card_learn_of_each_other(gpus: Gpus) -> None:
    agent = gpus.agent
    device = next(each for each, state in states(gpus).items() if state == "healthy")
    (row,) = [
        each
        for each in json.loads(agent.cli("node", "gpu", "-self", "-json").stdout)["Devices"]
        if each["ID"] == device
    ]
    seen = str(row["MarkIndex"])
    first = agent.cli("node", "gpu", "-self", f"-disable={device}", "-reason=new fan", f"-check-index={seen}")
    second = agent.cli("node", "gpu", "-self", f"-enable={device}", f"-check-index={seen}")
    assert first.returncode == 0, first.stderr
    assert second.returncode == 1
    assert "was changed since you looked at it" in second.stderr and "it is disabled now: new fan" in second.stderr
    assert states(gpus)[device] == "disabled"
    third = agent.cli("node", "gpu", "-self", f"-enable={device}")
    assert third.returncode == 0 and "It was disabled: new fan" in third.stdout, third.stderr
    wait_for("it is well", lambda: states(gpus)[device] == "healthy")


def test_figures_are_in_statistics_metrics_and_the_command_line(gpus: Gpus) -> None:
    agent = gpus.agent
    register(agent, gpu_job("busy", "sleep 100"))
    alloc = agent.running("busy", 1)[0]
    (device,) = given_to(agent, alloc)
    number = int(device.split("-")[2], 16)
    busy = {"gpu": 87, "memory": 40, "encoder": 0, "decoder": 0}
    gpus.change(number, utilization=busy, power_w=512.5, processes=[{"pid": 1, "memory_mib": 20480}])

    def usage() -> dict[str, Any] | None:
        stats = agent.get(f"/v1/client/allocation/{alloc['ID']}/stats")["ResourceUsage"]["DeviceStats"]
        found: dict[str, Any] = stats[0]["InstanceStats"][device] if stats else {}
        return found if found and found["Summary"]["IntNumeratorVal"] == 20480 else None

    found = wait_for("the figures", usage)["Stats"]
    shown = agent.cli("alloc", "status", "-stats", alloc["ID"]).stdout
    gauges = {row["Name"]: row["Value"] for row in agent.get("/v1/metrics")["Gauges"]
              if row["Labels"].get("device_id") == device}  # fmt: skip
    assert found["Attributes"]["GPU utilization"] == {
        "Desc": "Percent of time in which the GPU was busy", "IntNumeratorVal": 87, "Unit": "%",
    }  # fmt: skip
    assert found["Nested"]["Memory by process"]["Attributes"]["1"]["IntNumeratorVal"] == 20480
    assert re.search(r"Power usage += 512\.5 / 700\.0 W", shown)
    assert re.search(r"Memory by process 1 += 20480 MiB", shown)
    assert (gauges["nomad.client.device.gpu_utilization"], gauges["nomad.client.device.healthy"]) == (87.0, 1.0)
    stop(agent, "busy")


def test_the_topology_is_drawn_and_is_data(gpus: Gpus) -> None:
    drawn = gpus.agent.cli("node", "topo", "-self").stdout
    data = json.loads(gpus.agent.cli("node", "topo", "-self", "-json").stdout)

    assert re.search(r"^GPU0 +X +NV18 +NV18 .* 0 +0-47,96-143$", drawn, re.MULTILINE)
    assert data["Devices"][4]["Links"][gpu(0)] == "NV18"
    assert (data["Devices"][4]["NUMANode"], data["Devices"][4]["PciBusID"]) == (1, "00000000:59:00.0")


def test_a_mig_instance_is_a_device_of_its_own(tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    fake.write(machine, fake.layout("mig-split"))
    with running_agent(tmp_path, extra=settings(machine)) as agent:
        run_file(agent, tmp_path, shared_job("part", "mig", "8GiB", count=1))
        (alloc, other) = agent.running("part", 2)
        seen = [variables(log_of(agent, each, "pid"))["CUDA_VISIBLE_DEVICES"] for each in (alloc, other)]
        groups = {each["Name"] for each in Gpus(agent, machine).node()["NodeResources"]["Devices"]}

    assert all(each.startswith("MIG-") for each in seen)
    assert len(set(seen)) == 2
    assert groups == {"NVIDIA H100 80GB HBM3", *(f"NVIDIA H100 80GB HBM3 MIG {p}" for p in ("3g.40gb", "1g.10gb"))}


def test_tasks_keep_their_gpus_over_an_agent_that_is_killed(tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    fake.write(machine, fake.layout("l40s-pairs"))
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra=settings(machine)) as agent:
        register(agent, gpu_job("keeps", 'echo "pid $$"; sleep 100', count=2))
        before = agent.running("keeps", 1)[0]
        held, pid = given_to(agent, before), int(log_of(agent, before, "pid").split()[1])
        agent.kill()
        agent.start()
        register(agent, gpu_job("other", "sleep 100", count=2))
        other = agent.running("other", 1)[0]

        assert pid_is_alive(pid)
        assert given_to(agent, agent.running("keeps", 1)[0]) == held
        assert not set(given_to(agent, other)) & set(held)


@pytest.mark.parametrize(
    ("error", "word"),
    [("DRIVER_NOT_LOADED", "container without GPUs"), ("NO_PERMISSION", "run the agent as root")],
)
def test_why_there_is_no_gpu_is_told_at_the_start_and_in_the_nodes_status(
    tmp_path: Path, error: str, word: str
) -> None:
    machine = tmp_path / "machine.json"
    fake.write(machine, {**fake.layout("h200"), "init_error": error})
    with running_agent(tmp_path, extra=settings(machine)) as agent:
        told = rf"==> Devices:\n +nvidia +none: .*{word}"
        wait_for("the first screen", lambda: re.search(told, agent.log.read_text()))
        assert re.search(rf"Device Status += nvidia \(none: .*{word}", agent.cli("node", "status", "-self").stdout)
        fake.change(machine, lambda state: state.update(init_error=""))
        wait_for("the GPU", lambda: Gpus(agent, machine).node()["NodeResources"]["Devices"])


def test_a_machine_without_gpus_has_the_plugin_skipped_with_its_reason(tmp_path: Path) -> None:
    options = {"plugin": {"nvidia": {"config": {"library": "libno-such-thing.so.1"}}}}
    with running_agent(tmp_path, extra=options) as agent:
        (nvidia,) = [each for each in agent.get("/v1/yurt/plugins") if each["Name"] == "nvidia"]

        if nvidia["State"] == "ok":
            pytest.skip("this machine has an NVIDIA card")
        assert nvidia["State"] == "skipped"
        assert "no NVIDIA card" in nvidia["Reason"]


def shared_job(job_id: str, mode: str, memory: str, **more: Any) -> str:
    """A job file whose two tasks share cards."""
    extra = "\n".join(f"{name} = {json.dumps(value)}" for name, value in more.items())
    return f"""
job "{job_id}" {{
  group "g" {{
    count = 2
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
    task "main" {{
      driver       = "raw_exec"
      kill_timeout = "200ms"
      config {{
        command = "sh"
        args    = ["-c", "env | grep -E 'CUDA|YURT'; echo pid $$; exec sleep 100"]
      }}
      resources {{
        cpu    = 10
        memory = 16
        device "nvidia/gpu" {{
          share  = "{mode}"
          memory = "{memory}"
          {extra}
        }}
      }}
    }}
  }}
}}
"""


def run_file(agent: Agent, folder: Path, text: str) -> None:
    """Run a job file as a user does."""
    file = folder / "job.nomad.hcl"
    file.write_text(text)
    result = agent.cli("job", "run", "-detach", str(file))
    assert result.returncode == 0, result.stdout + result.stderr


def variables(log: str) -> dict[str, str]:
    """The task's environment in its output."""
    return dict(line.split("=", 1) for line in log.splitlines() if "=" in line)


def test_slices_share_a_card_and_the_one_that_overruns_is_stopped_alone(gpus: Gpus, tmp_path: Path) -> None:
    agent = gpus.agent
    run_file(agent, tmp_path, shared_job("slices", "slice", "20GiB"))
    one, two = agent.running("slices", 2)
    cards = [each.split("::")[0] for alloc in (one, two) for each in given_to(agent, alloc)]
    pids = [int(log_of(agent, alloc, "pid").split("pid ")[1].split()[0]) for alloc in (one, two)]
    assert len(set(cards)) == 1, "the second share goes where the first is"
    assert variables(log_of(agent, one, "pid"))["YURT_GPU_MEMORY_MB"] == "20480"
    number = int(cards[0].split("-")[2], 16)
    within = [{"pid": pid, "memory_mib": 19 * 1024} for pid in pids]
    gpus.change(number, processes=within)
    used = rf"\[{cards[0]}\] += 19456 / 20480 MiB"
    status = partial(agent.cli, "alloc", "status", one["ID"])
    wait_for("memory of its own processes, of what it booked", lambda: re.search(used, status().stdout))
    assert re.search(rf"{cards[0]} +slice, 20 GiB", status().stdout)
    gpus.change(number, processes=[{"pid": pids[0], "memory_mib": 23652}, within[1]])
    text = "used 23.1 of 20 GiB"
    wait_for("the overrun's event", lambda: text in events_of(agent, one["ID"]))
    wait_for("its end", lambda: not pid_is_alive(pids[0]))

    gpus.change(number, processes=within[1:])
    assert wait_for("failed", lambda: [a for a in agent.allocs("slices") if a["ClientStatus"] == "failed"])
    assert pid_is_alive(pids[1])
    assert text not in events_of(agent, two["ID"])
    stop(agent, "slices")


MPS_CONTROL = """#!/bin/sh
pids="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
server="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control-server"
if [ "$1" = "-d" ]; then
  [ -e "$pids" ] && echo "An instance of this daemon is already running" >&2 && exit 1
  ln -sf "$(command -v sleep)" "$server"
  setsid "$server" 100 >/dev/null 2>&1 </dev/null &
  until grep -aq "^$server" /proc/$!/cmdline; do kill -0 $! || exit 1; done
  echo $! > "$pids"
else
  read word && [ "$word" = quit ] && kill $(cat "$pids") && rm "$pids"
fi
"""


def test_tasks_that_share_by_mps_have_a_daemon_and_limits_that_end_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA's control program is a stand-in here: what it is told is shown, what it does is not."""
    machine, program = tmp_path / "machine.json", tmp_path / "bin" / "nvidia-cuda-mps-control"
    fake.write(machine, fake.layout("h200"))
    program.parent.mkdir()
    program.write_text(MPS_CONTROL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    folder = tmp_path / "mps"
    with running_agent(tmp_path, extra=settings(machine, mps_dir=str(folder))) as agent:
        run_file(agent, tmp_path, shared_job("mps", "mps", "40GiB", compute=40))
        tasks = [variables(log_of(agent, alloc, "pid")) for alloc in agent.running("mps", 2)]
        pids = folder / gpu(0)[-12:] / "pipe" / "nvidia-cuda-mps-control.pid"
        daemon = int(pids.read_text())

        for env in tasks:
            assert env["CUDA_MPS_PIPE_DIRECTORY"] == str(pids.parent)
            assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=40960M"
            assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "40"
        assert pid_is_alive(daemon)
        stop(agent, "mps")
        wait_for("the daemon's end", lambda: not pid_is_alive(daemon))


@pytest.fixture
def specification() -> Iterator[Path]:
    """A specification of the Container Device Interface for two pretended GPUs, where engines look for them."""
    file = Path("/var/run/cdi") / f"yurt-test-{os.getpid()}.json"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        devices = [{"name": gpu(number), "containerEdits": {"env": [f"CDI_GAVE={number}"]}} for number in range(2)]
        file.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}))
    except OSError as error:
        pytest.skip(f"/var/run/cdi cannot be written: {error}")
    yield file
    file.unlink()


@pytest.mark.skipif(bool(NO_PODMAN), reason=NO_PODMAN)
def test_a_container_of_podman_gets_its_gpu_by_the_container_device_interface(
    specification: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    engine = PodmanEngine(tmp_path_factory.mktemp("cdi"))
    machine = tmp_path / "machine.json"
    two = fake.layout("h100x8")
    fake.write(machine, {**two, "gpus": two["gpus"][:2]})
    podman = {"podman": {"config": {"socket_path": str(engine.socket)}}}
    job = gpu_job("contained", "", driver="podman")
    script = 'echo "sees $NVIDIA_VISIBLE_DEVICES engine gave $CDI_GAVE"; sleep 100'
    job["TaskGroups"][0]["Tasks"][0]["Config"] = {
        "image": PodmanEngine.image, "command": "/bin/sh", "args": ["-c", script], "network_mode": "none",
    }  # fmt: skip
    try:
        engine.start()
        engine.import_image()
        with running_agent(tmp_path, extra={"plugin": {**settings(machine)["plugin"], **podman}}) as agent:
            register(agent, job)
            alloc = agent.running("contained", 1)[0]
            words = log_of(agent, alloc, "gave").split()
            (device,) = given_to(agent, alloc)
    finally:
        engine.stop()

    assert (words[1], int(words[-1])) == (device, int(device.split("-")[2], 16))
