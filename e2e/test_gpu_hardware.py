"""Real agents on a machine with an NVIDIA GPU, compared with nvidia-smi and with what CUDA says; skipped elsewhere.

No toolkit is needed: the programs that use the GPU are Python with the driver's own `libcuda.so.1`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from yurt.testing.agent import Agent, register, running_agent, wait_for


def has_gpu() -> bool:
    """Whether nvidia-smi lists a GPU here."""
    if shutil.which("nvidia-smi") is None:
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False, timeout=60).returncode == 0


pytestmark = pytest.mark.skipif(
    not has_gpu(),
    reason="this machine has no NVIDIA GPU with a driver (nvidia-smi -L does not work)",
)
TOLERANCE = 0.02
NO_RESTART = {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000}
PROGRAM = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        print("error", name, code, flush=True)
    return code

call("cuInit", 0) and sys.exit(3)
count = ctypes.c_int()
call("cuDeviceGetCount", ctypes.byref(count))
for number in range(count.value):
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    call("cuDeviceGet", ctypes.byref(device), number)
    call("cuDeviceGetUuid", uuid, device)
    text = bytes(uuid).hex()
    print("sees GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])), flush=True)
context = ctypes.c_void_p()
call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
for size in map(int, sys.argv[1:]):
    address = ctypes.c_uint64()
    if not call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size << 20)):
        print("allocated", size, flush=True)
print("done", flush=True)
time.sleep(600)
"""


def smi(*fields: str) -> list[list[str]]:
    """Rows of nvidia-smi, a column for each field."""
    words = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    return [[cell.strip() for cell in line.split(", ")] for line in text.splitlines()]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent without any configuration for GPUs."""
    folder = tmp_path_factory.mktemp("hardware")
    (folder / "program.py").write_text(PROGRAM)
    with running_agent(folder) as agent:
        yield agent


@pytest.fixture(scope="module")
def whole(agent: Agent) -> None:
    """Skips where cards are split: they are not offered whole."""
    if any(row[0] == "Enabled" for row in smi("mig.mode.current")):
        pytest.skip("a card of this machine is in MIG mode")


def devices(agent: Agent) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Every device with its group, by id."""
    (stub,) = agent.get("/v1/nodes")
    groups = agent.get(f"/v1/node/{stub['ID']}")["NodeResources"]["Devices"]
    return {each["ID"]: (group, each) for group in groups for each in group["Instances"]}


def gpu_job(agent: Agent, job_id: str, *mebibytes: int, device: dict[str, Any] | None = None, count: int = 1) -> None:
    """Run a service that allocates so much of its GPU."""
    arguments = [str(agent.folder / "program.py"), *map(str, mebibytes)]
    task = {
        "Name": "main",
        "Driver": "raw_exec",
        "Config": {"command": sys.executable, "args": arguments},
        "KillTimeout": 500_000_000,
        "Resources": {"CPU": 100, "MemoryMB": 2048, "Devices": [{"Name": "nvidia/gpu", "Count": 1, **(device or {})}]},
    }
    group = {"Name": "g", "Count": count, "Tasks": [task], "RestartPolicy": NO_RESTART}
    group["ReschedulePolicy"] = {"Attempts": 0, "Unlimited": False}
    register(agent, {"ID": job_id, "Name": job_id, "Type": "service", "TaskGroups": [group]})


def given_to(agent: Agent, alloc: dict[str, Any]) -> list[str]:
    """The devices of an allocation's task."""
    tasks = agent.get(f"/v1/allocation/{alloc['ID']}")["AllocatedResources"]["Tasks"]
    return [each for device in tasks["main"]["Devices"] for each in device["DeviceIDs"]]


def log_of(agent: Agent, alloc: dict[str, Any], word: str = "done") -> str:
    """The task's output, when it has that word."""

    def probe() -> str:
        text = agent.cli("alloc", "logs", alloc["ID"]).stdout
        return text if word in text else ""

    return wait_for(f"{word} in the log", probe)


def stop(agent: Agent, job_id: str) -> None:
    agent.call("DELETE", f"/v1/job/{job_id}?purge=true")
    wait_for("its end", lambda: not [a for a in agent.get("/v1/allocations") if a["JobID"] == job_id
             and a["ClientStatus"] in ("running", "pending")])  # fmt: skip


def test_the_node_offers_what_nvidia_smi_lists(agent: Agent, whole: None) -> None:
    facts = ("uuid", "name", "memory.total", "driver_version", "pci.bus_id", "index")
    rows = {row[0]: row for row in smi(*facts, "clocks.max.sm", "clocks.max.mem")}
    found = devices(agent)

    assert found.keys() == rows.keys()
    for uuid, (group, instance) in found.items():
        _, name, memory, driver, bus, index, sm, mem = rows[uuid]
        attributes = group["Attributes"]
        assert (group["Name"], attributes["driver_version"]["String"]) == (name, driver)
        assert (attributes["memory"]["Int"], attributes["memory"]["Unit"]) == (int(memory), "MiB")
        assert (attributes["cores_clock"]["Int"], attributes["memory_clock"]["Int"]) == (int(sm), int(mem))
        assert instance["Locality"]["PciBusID"].lower() == bus.lower()
        assert (instance["Attributes"]["index"]["Int"], instance["Healthy"]) == (int(index), True)


def test_a_cuda_program_sees_exactly_its_gpu(agent: Agent, whole: None) -> None:
    gpu_job(agent, "sees", 16)
    alloc = agent.running("sees", 1)[0]
    seen = [line.split()[1] for line in log_of(agent, alloc).splitlines() if line.startswith("sees")]

    assert seen == given_to(agent, alloc)
    stop(agent, "sees")


def test_figures_are_those_of_nvidia_smi(agent: Agent, whole: None) -> None:
    gpu_job(agent, "figures", 1024)
    alloc = agent.running("figures", 1)[0]
    log_of(agent, alloc)
    (device,) = given_to(agent, alloc)

    def is_close() -> bool:
        stats = agent.get(f"/v1/client/allocation/{alloc['ID']}/stats")["ResourceUsage"]["DeviceStats"][0]
        ours = stats["InstanceStats"][device]["Stats"]["Attributes"]
        (row,) = [row for row in smi("uuid", "memory.used", "temperature.gpu", "power.draw") if row[0] == device]
        used, degrees, watts = (float(cell) for cell in row[1:])
        figures = (
            ours["Memory state"]["IntNumeratorVal"], ours["Temperature"]["IntNumeratorVal"],
            ours["Power usage"]["FloatNumeratorVal"],
        )  # fmt: skip
        pairs = zip(figures, (used, degrees, watts), strict=True)
        return all(abs(one - two) <= TOLERANCE * max(two, 50) for one, two in pairs)

    wait_for("memory, temperature and power within 2 %", is_close)
    shown = json.loads(agent.cli("alloc", "status", "-json", alloc["ID"]).stdout)
    assert shown["ClientStatus"] == "running"
    stop(agent, "figures")


@pytest.mark.skipif(shutil.which("nvidia-cuda-mps-control") is None, reason="nvidia-cuda-mps-control is not installed")
def test_tasks_under_mps_share_a_card_and_keep_to_their_memory(agent: Agent, whole: None) -> None:
    gpu_job(agent, "mps", 512, 4096, device={"Share": "mps", "MemoryMB": 2048, "Compute": 40}, count=2)
    allocs = agent.running("mps", 2)
    logs = [log_of(agent, alloc) for alloc in allocs]

    assert len({each.split("::")[0] for alloc in allocs for each in given_to(agent, alloc)}) == 1
    for text in logs:
        assert "allocated 512" in text
        assert "allocated 4096" not in text, "MPS refuses what is over the booking"
    stop(agent, "mps")


def test_the_slice_that_overruns_is_stopped_and_its_neighbour_lives(agent: Agent, whole: None) -> None:
    gpu_job(agent, "good", 256, device={"Share": "slice", "MemoryMB": 2048})
    good = agent.running("good", 1)[0]
    log_of(agent, good)
    gpu_job(agent, "greedy", 4096, device={"Share": "slice", "MemoryMB": 2048})
    failed = wait_for("its failure", lambda: [a for a in agent.allocs("greedy") if a["ClientStatus"] == "failed"])
    events = agent.get(f"/v1/allocation/{failed[0]['ID']}")["TaskStates"]["main"]["Events"]

    assert any("of 2 GiB" in event["DisplayMessage"] for event in events)
    assert [a["ID"] for a in agent.running("good", 1)] == [good["ID"]]
    for job_id in ("greedy", "good"):
        stop(agent, job_id)
