"""Go's own library for plugins, hashicorp/go-plugin, on the other side: binaries of a driver and of
devices that it serves run jobs, and a host that it makes, as a Nomad agent is one, leads tasks of `yurt driver serve`.
The programs are built of e2e/go.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf.compiler import plugin_pb2
from yurt.client.files.secrets_dir import unmount_secrets
from yurt.goplugin.messages import read_files
from yurt.testing.agent import Agent, pid_is_alive, running_agent, wait_for
from yurt.testing.processes import ended_at_exit, processes
from yurt.testing.services.engines import DockerEngine, PodmanEngine, missing, running_engine
from yurt.testing.services.go_programs import build_go, fetched_module

pytestmark = pytest.mark.timeout(900)

SOURCES = Path(__file__).parent / "go"
MODULE = "yurt.test/goplugin"
GENERATORS = {
    "protoc-gen-go": "google.golang.org/protobuf/cmd/protoc-gen-go",
    "protoc-gen-go-grpc": "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
}
PACKAGES = {
    "attribute.proto": "structs", "stats.proto": "structs", "recoverable_error.proto": "structs",
    "hcl_spec.proto": "hclspec", "base.proto": "base", "device.proto": "device", "driver.proto": "drivers",
}  # fmt: skip
DYNAMIC_IDS = range(80_000, 90_000) if os.geteuid() == 0 else [os.geteuid()]
"""The users that tasks without a user of their own run as."""
OLDEST_GO = (1, 19)
CONFIG = '{"enabled": true}'
UNGRACEFUL = "plugin failed to exit gracefully"
SCRIPT = (
    "trap 'echo bye; exit 3' TERM; echo hello $NOMAD_TASK_NAME $ACME_BOARDS; echo $$ > ${NOMAD_TASK_DIR}/pid; "
    "i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done"
)
JOB = """
job "sampled" {
  group "g" {
    task "main" {
      driver = "sample"
      config {
        command = "/bin/sh"
        args    = ["-c", "SCRIPT"]
        limit   = 64
        ratio   = 0.25
        labels {
          team = "shop"
        }
        port_map = {
          http = 80
        }
        sysctl = {
          "net.core.somaxconn" = "16"
        }
        logging {
          driver = "journald"
          config {
            tag = "x"
          }
        }
        mount {
          target   = "/a"
          readonly = true
        }
        mount {
          target = "/b"
          options {
            size = "1m"
          }
        }
        named "one" {
          target = "/n"
        }
        address = "203.0.113.7"
      }
      service {
        name         = "sampled"
        provider     = "nomad"
        port         = "80"
        address_mode = "driver"
      }
      resources {
        cpu    = 20
        memory = 20
        device "acme/fpga" {}
      }
    }
  }
}
"""
DECODED = {
    "limit": 64,
    "ratio": 0.25,
    "loud": True,
    "labels": [{"team": "shop"}],
    "port_map": [{"http": 80}],
    "sysctl": {"net.core.somaxconn": "16"},
    "logging": {"driver": "journald", "config": [{"tag": "x"}]},
    "mount": [
        {"target": "/a", "readonly": True, "options": None},
        {"target": "/b", "readonly": False, "options": {"size": "1m"}},
    ],
    "devices": [],
    "named": {"one": {"target": "/n", "readonly": False, "options": None}},
    "address": "203.0.113.7",
    "fail": "",
}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that tasks of other users may enter."""
    with tempfile.TemporaryDirectory(prefix="yurt-go-") as name:
        os.chmod(name, 0o755)
        yield Path(name)
        unmount_secrets(name)


def write_messages(generator: Path, folder: Path) -> None:
    """Our own definitions of the protocol as Go code."""
    options = [f"module={MODULE}", *(f"M{name}={MODULE}/wire/{package}" for name, package in PACKAGES.items())]
    request = plugin_pb2.CodeGeneratorRequest(
        file_to_generate=PACKAGES,
        parameter=",".join(options),
        proto_file=[file for file in read_files() if file.name in PACKAGES or file.package == "google.protobuf"],
    )
    made = subprocess.run([generator], input=request.SerializeToString(), stdout=subprocess.PIPE, check=True)
    answer = plugin_pb2.CodeGeneratorResponse.FromString(made.stdout)
    assert not answer.error
    for file in answer.file:
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs `driver`, `device` and `host`; skips where they cannot be built."""
    folder = tmp_path_factory.mktemp("go")
    source = fetched_module(SOURCES, folder, oldest=OLDEST_GO)
    build_go(source, folder, *GENERATORS.values())
    for name in GENERATORS:
        write_messages(folder / name, source)
    build_go(source, folder, "./driver", "./device", "./host")
    return folder


def serve_command(folder: Path, driver: str = "raw_exec") -> list[str]:
    return [sys.executable, "-m", "yurt.cli.main", "driver", "serve", "-state-dir", f"{folder}/served", driver]


def host(programs: Path, folder: Path, *words: str) -> dict[str, Any]:
    """What a host in Go saw."""
    done = subprocess.run([programs / "host", *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.stderr, (folder / "host.log").read_text())
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def log_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "host.log").read_text().splitlines()]


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_host_in_go_leads_a_task_of_a_served_driver(programs: Path, tmp_path: Path, is_encrypted: bool) -> None:
    flags = ["-tls"] if is_encrypted else []
    saw = host(programs, tmp_path, *flags, "-config", CONFIG, str(tmp_path), "life", *serve_command(tmp_path))

    assert saw["info"] == "raw_exec DRIVER [v0.1.0]" and saw["health"] == "HEALTHY"
    assert {"command", "args"} <= set(saw["task_options"]) and "denied_envvars" in saw["plugin_options"]
    assert (saw["stdout"], saw["stderr"]) == ("hello world\ngot usr1\nbye\n", "oops\n")
    assert (saw["exec"], saw["exec_streaming"]) == ('4 "out\\n" "err\\n"', '5 "through\\n"')
    assert saw["rss"] > 0 and saw["has_cpu"]
    assert saw["running"]["state"] == "RUNNING" and saw["running"]["completed"] == "0001-01-01T00:00:00Z"
    assert saw["ended"] == '3 0 ""' and saw["exited"]["state"] == "EXITED"
    assert saw["exited"]["completed"] > saw["exited"]["started"] > "2020"
    assert "stop it first" in saw["destroy_running"]
    assert saw["unknown_task"] == "task not found for given id"
    assert 'did you mean "command"?' in saw["wrong_config"]
    lines = log_lines(tmp_path)
    assert UNGRACEFUL not in [line["@message"] for line in lines]
    assert any(line["@level"] == "info" and "raw_exec is offered" in line["@message"] for line in lines)


def test_a_host_in_go_finds_a_served_driver_and_its_task_again(programs: Path, tmp_path: Path) -> None:
    left = host(programs, tmp_path, "-config", CONFIG, str(tmp_path), "leave", *serve_command(tmp_path))
    assert pid_is_alive(left["pid"])

    saw = host(programs, tmp_path, str(tmp_path), "return")

    assert saw["found"]["state"] == "RUNNING" and saw["ended"] == '3 0 ""'
    wait_for("the end of the plugin", lambda: not pid_is_alive(left["pid"]))


@pytest.fixture
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A running Docker engine, the driver's name and its config."""
    if reason := missing("dockerd", "containerd", "docker", "busybox", "ip"):
        pytest.skip(reason)
    with running_engine(DockerEngine(tmp_path_factory.mktemp("docker"))) as engine:
        yield Engine("docker", {"endpoint": engine.endpoint}, engine.image, engine.containers)


@pytest.fixture
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A running Podman, the driver's name and its config."""
    if reason := missing("podman", "runc", "conmon", "busybox"):
        pytest.skip(reason)
    with running_engine(PodmanEngine(tmp_path_factory.mktemp("podman"))) as engine:
        yield Engine("podman", {"socket_path": str(engine.socket)}, engine.image, engine.containers)


class Engine(NamedTuple):
    """A running engine for the driver of that name."""

    driver: str
    config: dict[str, str]
    image: str
    containers: Callable[[], list[str]]


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_host_in_go_leads_a_container_of_a_served_driver(
    programs: Path, tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    engine: Engine = request.getfixturevalue(name)
    folder = tmp_path / "host"
    folder.mkdir()
    task = {"image": engine.image, "network_mode": "none"}
    settings = ["-config", json.dumps(engine.config), "-task", json.dumps(task)]

    saw = host(programs, folder, *settings, str(folder), "life", *serve_command(folder, name))

    assert saw["info"].startswith(f"{name} DRIVER") and saw["health"] == "HEALTHY"
    assert {"image", "command", "args"} <= set(saw["task_options"])
    assert (saw["stdout"], saw["stderr"]) == ("hello world\ngot usr1\nbye\n", "oops\n")
    assert (saw["exec"], saw["exec_streaming"]) == ('4 "out\\n" "err\\n"', '5 "through\\n"')
    assert saw["rss"] > 0 and saw["has_cpu"]
    assert saw["running"]["state"] == "RUNNING" and saw["ended"] == '3 0 ""' and saw["exited"]["state"] == "EXITED"
    assert saw["unknown_task"] == "task not found for given id"
    assert 'did you mean "command"?' in saw["wrong_config"]
    assert engine.containers() == []


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def agent(programs: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Agent]:
    """An agent with the Go driver and the Go device plugin in its plugin_dir."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    shutil.copy(programs / "driver", plugins / "nomad-driver-sample")
    shutil.copy(programs / "device", plugins / "nomad-device-board")
    extra: dict[str, Any] = {"plugin_dir": str(plugins), "plugin": {"sample": {"config": {"allowed": ["all"]}}}}
    if request.param:
        extra["client"] = {"enabled": True, "options": {"plugin.mtls": "true"}}
    paths = {str(plugins / name) for name in ("nomad-driver-sample", "nomad-device-board")}
    with (
        ended_at_exit(lambda words: not paths.isdisjoint(words[:1])),
        running_agent(tmp_path, data_dir=tmp_path / "data", extra=extra) as agent,
    ):
        yield agent


def driver_pids(folder: Path) -> set[int]:
    program = str(folder / "plugins" / "nomad-driver-sample")
    return {process.pid for process in processes(lambda words: words[:1] == [program])}


def assert_counting_goes_on(agent: Agent, alloc_id: str) -> None:
    """The log counts without a gap, and goes on."""

    def lines() -> list[str]:
        return agent.cli("alloc", "logs", alloc_id).stdout.splitlines()

    before = wait_for("the log", lambda: len(lines()))
    wait_for("more lines", lambda: len(lines()) > before + 1)
    hello, *numbers = lines()
    assert hello == "hello main left"
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


def run_sampled(agent: Agent, folder: Path) -> tuple[str, Path]:
    """The job in the Go driver: its allocation, and the folder `local` of its task."""
    (folder / "sampled.nomad.hcl").write_text(JOB.replace("SCRIPT", SCRIPT))
    ran = agent.cli("job", "run", "-detach", str(folder / "sampled.nomad.hcl"))
    assert ran.returncode == 0, ran.stderr
    [alloc] = agent.running("sampled", 1)
    return alloc["ID"], folder / "data" / "alloc" / alloc["ID"] / "main" / "local"


def board_in_use(agent: Agent, alloc_id: str) -> dict[str, Any] | None:
    groups = agent.get(f"/v1/client/allocation/{alloc_id}/stats")["ResourceUsage"]["DeviceStats"] or []
    return next((group["InstanceStats"]["left"]["Summary"] for group in groups), None)


def test_binaries_in_go_run_a_job_that_survives_agent_and_plugin(agent: Agent, tmp_path: Path) -> None:
    found = {each["Name"]: each for each in agent.get("/v1/yurt/plugins")}
    assert found["nomad-driver-sample"]["Drivers"] == ["sample"] and found["nomad-device-board"]["Devices"] == ["board"]
    alloc_id, local = run_sampled(agent, tmp_path)
    pid = int(wait_for("the pid", lambda: (local / "pid").read_text().strip() if (local / "pid").exists() else ""))
    decoded = json.loads((local / "config.json").read_text())
    assert {name: value for name, value in decoded.items() if name not in ("command", "args")} == DECODED
    user = os.stat(f"/proc/{pid}").st_uid
    assert user in DYNAMIC_IDS and (local / "pid").stat().st_uid == user
    assert agent.cli("alloc", "exec", alloc_id, "/bin/sh", "-c", "id -u; exit 6").stdout == f"{user}\n"
    [service] = wait_for("the service", lambda: agent.get("/v1/service/sampled"))
    assert (service["Address"], service["Port"]) == ("203.0.113.7", 80)
    used = wait_for("the figures of the board", lambda: board_in_use(agent, alloc_id))
    assert (used["IntNumeratorVal"], used["IntDenominatorVal"], used["Unit"]) == (3, 8, "GiB")

    agent.kill()
    agent.start()
    assert pid_is_alive(pid) and [each["ID"] for each in agent.running("sampled", 1)] == [alloc_id]
    assert_counting_goes_on(agent, alloc_id)

    [plugin_pid] = driver_pids(tmp_path)
    os.kill(plugin_pid, signal.SIGKILL)
    wait_for("another plugin", lambda: driver_pids(tmp_path) - {plugin_pid})
    assert pid_is_alive(pid)
    assert_counting_goes_on(agent, alloc_id)
    agent.cli("job", "stop", "-purge", "sampled")
    wait_for("the end of the task", lambda: not pid_is_alive(pid))
