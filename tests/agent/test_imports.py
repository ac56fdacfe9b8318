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
    "yurt.rpc.certificates",
    "yurt.rpc.link",
    "yurt.rules.diff",
    "yurt.scheduler.explain",
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
MODULES_MAX = 1209
"""A bound for the sum: an agent that is ready had 1268 modules after its wide classes were split (ADR 0020).

The operations of access control and the sockets of tasks brought it to 1284, the routes of the web UI to 1289, the
rest of the routes of Nomad and the facts of nodes to 1299, the read models of the web UI to 1313, the queues of
node pools to 1319, the metrics under Nomad's names to 1333, files and syslog of the log and systemd to 1337,
dynamic users and the Zstandard that aiohttp looks for to 1347, charts with a past and gangs to 1352, the activity of
devices and its accounts and health to 1363, marks of devices to 1364, the reclaim of idle ones to 1376,
running sums of GPU usage, the rows they sum, suspect devices and the split of a queue to 1382,
the prefixes of ids to 1383, the rules of a region and the rights of work in threads to 1385. Without the parts of etcd,
the driver of NVIDIA's cards and the differences of jobs it has 1376, with settings without effect, the pressure of
memory and cpusets 1381, with MIG instances that nodes create 1384. Without the handlers of its routes, which are
imported with the first request of their resource, and the drivers of engines that are not there, it has 1265; known
refusals of devices and the records of MIG instances brought it to 1268, the cores that all drivers share and what
Debian's own Python adds to 1270. Without the code of time zones, archives, list
filters, templates, artifacts, read models and explanations, which is imported when it is used, it has
1235, and without the library of ciphers 1194; up to 1203 where the machine is busy.
The trials of devices, which device offers need, added one.
"""
DATACLASSES = ("core/src/yurt/state/schema.py", "core/src/yurt/storage/etcd/session.py")
"""The modules that may declare dataclasses: each takes 0.9 ms and 140 objects at the start, a struct a fiftieth."""
SOURCES = Path(__file__).parents[2] / "core" / "src" / "yurt"
NO_ENGINES = {
    "docker": {"config": {"endpoint": "unix:///nowhere/docker.sock"}},
    "podman": {"config": {"socket_path": "/nowhere/podman.sock"}},
}
"""The plugins' blocks, so that an engine of the machine that runs the tests is not found."""
LAST_IMPORT = "yurt.scheduler.job_types.system"
"""What an agent imports last, in a thread, once it has told that it is ready."""


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


def test_an_idle_dev_agent_imports_nothing_that_only_others_need(imported: set[str]) -> None:
    assert sorted(name for name in imported if f"{name}.".startswith(tuple(f"{each}." for each in UNNEEDED))) == []


@pytest.mark.parametrize("name", [name for name in UNNEEDED if name.startswith("yurt")])
def test_what_is_not_needed_still_has_that_name(name: str) -> None:
    assert find_spec(name) is not None


def test_an_idle_dev_agent_imports_no_more_than_it_did(imported: set[str]) -> None:
    assert len(imported) <= MODULES_MAX


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
