"""What an idle dev agent has imported: nothing of what only clusters, TLS, old protocols or rare requests need."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from yurt.testing.agent import YURT, Agent, wait_for

UNNEEDED = (
    "cryptography",
    "google.protobuf",
    "grpc",
    "gzip",
    "hcl2",
    "multiprocessing",
    "numpy.ma",
    "numpy.random",
    "prometheus_client",
    "sqlite3.dump",
    "tarfile",
    "unittest",
    "wsgiref",
    "yurt.agent.blocks.audit",
    "yurt.agent.cluster.cluster",
    "yurt.agent.cluster.membership",
    "yurt.agent.cluster.own_etcd",
    "yurt.agent.peers",
    "yurt.agent.regions",
    "yurt.agent.remote_agents",
    "yurt.audit",
    "yurt.client.allocations.migration",
    "yurt.client.archives",
    "yurt.client.artifacts.http",
    "yurt.client.artifacts.repository",
    "yurt.client.artifacts.task_artifacts",
    "yurt.client.artifacts.unpacking",
    "yurt.client.artifacts.worker",
    "yurt.client.templates.functions",
    "yurt.client.templates.task_templates",
    "yurt.filters",
    "yurt.goplugin",
    "yurt.gotemplate",
    "yurt.http.cluster_routes",
    "yurt.http.resources",
    "yurt.http.ui_routes",
    "yurt.readmodels.job_facts",
    "yurt.regexps",
    "yurt.rpc.certificates",
    "yurt.rpc.link",
    "yurt.rules.diff",
    "yurt.scheduler.explain",
    "yurt.scheduler.job_types.system",
    "yurt.sdk.containers.engine",
    "yurt.server.keys.ciphers",
    "yurt.server.login",
    "yurt.server.operations.explanations",
    "yurt.server.views.live_rows",
    "yurt.storage.archive",
    "yurt.storage.etcd.log",
    "yurt.storage.etcd.member_process",
    "yurt.storage.sqlite",
    "yurt.testing",
    "yurt_driver_docker.driver",
    "yurt_driver_podman.driver",
    "yurt_jobspec",
    "zoneinfo",
)
"""With all that is below them. What the agent needs later is imported when it is, by the function that needs it."""
PREPARED = frozenset(f"yurt.http.resources{name}" for name in ("", ".first_requests", ".jobs", ".parsing"))
"""What answers the first registration: an agent with a server imports it in a thread once it is ready."""
MODULES_MAX = 990
"""A bound for the modules of ours and of libraries: an agent that is ready has 986.

Python's own are not counted: how many there are (240 in 3.11.7) depends on its version and on who built it. The bound
leaves room for a few new modules, not for a library or a package. What lowered the sum: wide classes were split
(ADR 0020); etcd, NVIDIA's driver and differences of jobs are imported with their first use, as are the handlers of
routes, archives, templates, artifacts, read models, explanations and the library of ciphers.
"""
DATACLASSES = ("core/src/yurt/state/schema.py", "core/src/yurt/storage/etcd/session.py")
"""The modules that may declare dataclasses: each takes 0.9 ms and 140 objects at the start, a struct a fiftieth."""
SOURCES = Path(__file__).parents[2] / "core" / "src" / "yurt"
NO_ENGINES = {
    "docker": {"config": {"endpoint": "unix:///nowhere/docker.sock"}},
    "podman": {"config": {"socket_path": "/nowhere/podman.sock"}},
}
"""The plugins' blocks, so that an engine of the machine that runs the tests is not found."""
LAST_IMPORT = "yurt.http.forwarding.targets"
"""The last import of an agent. A thread does it for the first read, after the agent is ready."""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of all modules of a dev agent that waits for its first job."""
    folder = tmp_path_factory.mktemp("agent")
    command = [sys.executable, "-X", "importtime", *YURT[1:]]
    agent = Agent(folder, data_dir=None, command=command, extra={"plugin": NO_ENGINES})
    agent.start()
    try:
        return wait_for("the last import", lambda: names(agent.log) if LAST_IMPORT in names(agent.log) else None, 60)
    finally:
        agent.interrupt()


def names(log: Path) -> set[str]:
    """The modules of which Python has told how long they took."""
    return set(re.findall(r"^import time: .*\| +(\S+)$", log.read_text(), re.MULTILINE))


def of_python(name: str) -> bool:
    """Whether a module belongs to Python's standard library."""
    return name.partition(".")[0] in sys.stdlib_module_names


def test_an_idle_dev_agent_imports_nothing_that_only_others_need(imported: set[str]) -> None:
    below = tuple(f"{name}." for name in UNNEEDED)
    assert sorted(name for name in imported - PREPARED if f"{name}.".startswith(below)) == []


@pytest.mark.parametrize("name", [name for name in UNNEEDED if name.startswith("yurt")])
def test_what_is_not_needed_still_has_that_name(name: str) -> None:
    assert find_spec(name) is not None


def test_an_idle_dev_agent_imports_no_more_than_it_did(imported: set[str]) -> None:
    assert len([name for name in imported if not of_python(name)]) <= MODULES_MAX


def test_shipped_modules_declare_structs_and_not_dataclasses() -> None:
    files = {path for path in SOURCES.rglob("*.py") if path.relative_to(SOURCES).parts[0] != "testing"}
    found = {path for path in files if re.search(r"^@(dataclasses\.)?dataclass\b", path.read_text(), re.MULTILINE)}
    assert sorted(str(path.relative_to(SOURCES.parents[2])) for path in found) == sorted(DATACLASSES)


def test_an_agent_makes_the_decoders_of_its_log_when_it_reads_one() -> None:
    program = (
        "import yurt.agent.node, yurt.structs.commands.codec as codec, yurt.state.row_codecs as rows\n"
        "print([each.cache_info().currsize for each in (codec._one, codec._several, rows._decoder)])"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert made.stdout.strip() == "[0, 0, 0]"
