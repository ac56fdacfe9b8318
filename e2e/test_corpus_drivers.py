"""Job files that others wrote, with the drivers and options that they ask for: each runs, or says why it does not.

What belongs to somebody else's cluster is taken away (their datacenters, nodes, volumes, fixed ports, vaults); the
tasks' drivers, options, users, environments, artifacts and templates stay. There is no registry here, so images are
busybox, and a command that busybox lacks is a stated reason. Scripts for `raw_exec` run as nobody, and not at all
where they would touch the machine. A sample runs each time, all of them in a nightly run (`YURT_NIGHTLY=1`).
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from yurt.testing.agent import Agent, ApiFailure, register, running_agent, wait_for
from yurt.testing.nightly import is_nightly
from yurt.testing.services.engines import DockerEngine, PodmanEngine, missing
from yurt_jobspec import parse_job

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus" / "jobspecs"
REASON = missing("dockerd", "containerd", "docker", "podman", "runc", "conmon", "busybox", "java")
pytestmark = [
    pytest.mark.skipif(
        not CORPUS.is_dir(), reason="the corpus of other people's job files is not beside this checkout"
    ),
    pytest.mark.skipif(bool(REASON), reason=REASON),
]
IMAGES = {"docker": DockerEngine.image, "podman": PodmanEngine.image}
DRIVERS = ("docker", "exec", "java", "podman", "raw_exec")
SAMPLE, AT_ONCE, LIMIT_S = 8, 8, 150.0
RUN_SHARES = {
    "docker": 0.4,
    "exec": 0.05,
    "java": 0.3 if shutil.which("javac") else 0.0,
    "podman": 0.1,
    "raw_exec": 0.2,
}
"""The part of each driver's job files that must run here; the others state their reason. Java's compile their class.

Some scripts end at once with an error: on a busy machine a look may come too late to see them run.
"""
TOUCHES_THE_MACHINE = ("iptables", "systemctl", "nomad server", "apt", "reboot")
ALLOWED = {"allow_caps": ["all"], "allowed_modes": {"pid": ["host"]}}
"""What the operator allows containers here; host folders and privileged ones are refused, which is a stated reason."""
FOREIGN_GROUP = (
    "Constraints",
    "Affinities",
    "Volumes",
    "Consul",
    "Scaling",
    "Spreads",
    "Update",
    "Migrate",
    "Services",
)
FOREIGN_TASK = (
    "Constraints", "Affinities", "Vault", "Consul", "VolumeMounts", "Identity", "Identities", "CSIPluginConfig",
    "ScalingPolicies", "Services",
)  # fmt: skip
NO_REASONS = (
    "Task received", "Building Task Directory", "Task started", "Downloading", "Error was unrecoverable",
    "Policy allows no restarts", "Sent interrupt", "Task successfully killed", "Main tasks", "Task's sibling",
)  # fmt: skip
NEVER = {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000}


class Case(NamedTuple):
    """A job file, and the drivers of its tasks."""

    name: str
    path: Path
    drivers: frozenset[str]


class Outcome(NamedTuple):
    """What became of a job: `kind` is ran, failed, waits, unplaced or refused; why, unless it ran."""

    kind: str
    why: str = ""


def cases(driver: str) -> list[Case]:
    """The end-to-end jobs of Nomad's own tests and those of real users that have tasks of this driver."""
    rows = [json.loads(line) for line in (CORPUS / "manifest.jsonl").read_text().splitlines()]
    found = []
    for row in rows:
        path = CORPUS / row["group"] / f"{row['name']}.json"
        if row["group"].startswith("real-") or row["group"].endswith("-e2e"):
            drivers = drivers_in(path)
            found += [Case(row["id"], path, drivers)] if driver in drivers and drivers <= set(DRIVERS) else []
    return found if is_nightly() else found[:: max(1, len(found) // SAMPLE)]


def drivers_in(path: Path) -> frozenset[str]:
    """The drivers of a job's tasks; none of what is no job."""
    job = document(path) if path.exists() else {}
    return frozenset(task["Driver"] for group in job.get("TaskGroups") or () for task in group.get("Tasks") or ())


def document(path: Path) -> dict[str, Any]:
    """The job of a file as the API has it: read by our own parser where that needs no variables, else as recorded."""
    recorded = json.loads(path.read_text())
    job: dict[str, Any] = recorded.get("Job", recorded)
    return job


def made_for_here(case: Case, number: int) -> dict[str, Any]:
    """The job without what belongs to another cluster."""
    source = case.path.with_suffix(".hcl")
    recorded = document(case.path)
    plain = "variable " not in source.read_text() and not Path(f"{case.path.with_suffix('')}.files").exists()
    job = parse_job(source.read_text(), filename=source.name, base_dir=source.parent) if plain else recorded
    job |= {"Datacenters": ["*"], "NodePool": "default", "Namespace": "default", "Region": "global", "Priority": 50}
    job |= dict.fromkeys(
        ("Constraints", "Affinities", "Spreads", "Periodic", "ParameterizedJob", "Multiregion", "Update")
    )
    job["ID"] = job["Name"] = f"corpus-{number}"
    job["TaskGroups"] = [group for group in job["TaskGroups"] if group.get("Tasks")]
    for group in job["TaskGroups"]:
        make_group_local(group, Path(case.name).parts[0])
    return job


def make_group_local(group: dict[str, Any], source: str) -> None:
    """One allocation of the group that never starts again, with ports of its own."""
    group.update(dict.fromkeys(FOREIGN_GROUP))
    group |= {"Count": 1, "RestartPolicy": NEVER, "ReschedulePolicy": {"Attempts": 0, "Unlimited": False}}
    group["Networks"] = [own_ports(network) for network in group.get("Networks") or ()]
    for task in group["Tasks"]:
        make_task_local(task, source)


def own_ports(network: Mapping[str, Any]) -> dict[str, Any]:
    """The network with ports that nobody else has."""
    ports = [*(network.get("ReservedPorts") or ()), *(network.get("DynamicPorts") or ())]
    free = [{"Label": port["Label"], "To": port.get("To") or 0} for port in ports]
    mode = network.get("Mode") or "host"
    return {"Mode": mode if mode in ("host", "bridge", "none") else "host", "DynamicPorts": free}


def make_task_local(task: dict[str, Any], source: str) -> None:
    """Give a task an image and a size of this machine, and a user that can do it no harm."""
    task |= dict.fromkeys(FOREIGN_TASK)
    networks = [own_ports(network) for network in (task.get("Resources") or {}).get("Networks") or ()]
    task["Resources"] = {"CPU": 20, "MemoryMB": 96, "Networks": networks}
    task["RestartPolicy"] = NEVER
    config = task["Config"] = dict(task.get("Config") or {})
    if task["Driver"] in IMAGES:
        config["image"] = IMAGES[task["Driver"]]
        config.pop("load", None)
    if task["Driver"] == "raw_exec" and source.startswith("real-"):
        task["User"] = "nobody"


def is_harmless(case: Case) -> bool:
    """Whether its commands leave the machine as it is."""
    text = case.path.read_text()
    return "raw_exec" not in case.drivers or not any(word in text for word in TOUCHES_THE_MACHINE)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent with both engines, and an image in each."""
    with ExitStack() as stack:
        docker, podman = (
            DockerEngine(tmp_path_factory.mktemp("docker")),
            PodmanEngine(tmp_path_factory.mktemp("podman")),
        )
        for engine in (docker, podman):
            stack.callback(engine.stop)
            engine.start()
            engine.import_image()
        config = {
            "docker": {"config": {"endpoint": docker.endpoint, "infra_image": docker.image} | ALLOWED},
            "podman": {"config": {"socket_path": str(podman.socket)} | ALLOWED},
        }
        made = stack.enter_context(running_agent(tmp_path_factory.mktemp("agent"), extra={"plugin": config}))
        wait_for("the drivers", lambda: are_healthy(made), 60.0)
        yield made


def are_healthy(agent: Agent) -> bool:
    """Whether the node has every driver."""
    node = agent.get(f"/v1/node/{agent.get('/v1/nodes')[0]['ID']}")
    return all((node["Drivers"].get(name) or {}).get("Healthy") for name in DRIVERS)


def outcome(agent: Agent, job_id: str) -> Outcome | None:
    """What became of a job, once that is known."""
    allocs = agent.allocs(job_id)
    for evaluation in agent.get(f"/v1/job/{job_id}/evaluations"):
        for group, why in (evaluation.get("FailedTGAllocs") or {}).items():
            return Outcome("unplaced", f"{group}: {json.dumps(why)[:200]}")
    kinds = {alloc["ClientStatus"] for alloc in allocs}
    if "failed" in kinds:
        return Outcome(
            "failed", " | ".join(told(agent, alloc["ID"]) for alloc in allocs if alloc["ClientStatus"] == "failed")
        )
    if allocs and kinds <= {"running", "complete"}:
        return Outcome("ran")
    waits = [text for alloc in allocs if "Missing: " in (text := told(agent, alloc["ID"]))]
    return Outcome("waits", waits[0]) if waits else None


def told(agent: Agent, alloc_id: str) -> str:
    """What the events of an allocation's tasks say, without those that every task has."""
    states = agent.get(f"/v1/allocation/{alloc_id}")["TaskStates"] or {}
    texts = [event["DisplayMessage"] for state in states.values() for event in state["Events"] or ()]
    return " / ".join(text for text in texts if text and not text.startswith(NO_REASONS))


@pytest.mark.parametrize("driver", DRIVERS)
def test_job_files_of_a_driver_run_or_say_why_not(
    agent: Agent, driver: str, record_property: Callable[[str, object], None]
) -> None:
    found: dict[str, Outcome] = {}
    todo = [case for case in cases(driver) if is_harmless(case)]
    for start in range(0, len(todo), AT_ONCE):
        jobs: dict[str, str] = {}
        for number, case in enumerate(todo[start : start + AT_ONCE]):
            try:
                register(agent, made_for_here(case, number))
                jobs[case.name] = f"corpus-{number}"
            except ApiFailure as error:
                found[case.name] = Outcome("refused", error.text)
        for name, job_id in jobs.items():
            found[name] = wait_for(f"{name} to run or to say why not", partial(outcome, agent, job_id), LIMIT_S)
        for job_id in jobs.values():
            agent.call("DELETE", f"/v1/job/{job_id}?purge=true")
    counted = Counter(each.kind for each in found.values())
    record_property("outcomes", dict(counted))
    print(driver, dict(counted), *(f"\n  {name}: {each.kind} {each.why[:300]}" for name, each in found.items()))
    assert all(each.why for each in found.values() if each.kind != "ran"), found
    assert counted["ran"] >= RUN_SHARES[driver] * len(found)
