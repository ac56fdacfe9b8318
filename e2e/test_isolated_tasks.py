"""Real agents and real engines: exec, java and qemu tasks from a job to their end, and what is left on the host."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from yurt.testing.agent import Agent, pid_is_alive, register, running_agent, wait_for
from yurt.testing.services.guest import find_parts, initramfs

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="isolation takes root on Linux"),
    pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed (apt install runc)"),
]
TICKER = 'i=0; while true; do i=$((i+1)); echo "$i $(id -un) $NOMAD_TASK_DIR"; sleep 0.2; done'
NO_RESTART = {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000}
PARTS = find_parts()
WAIT_IN_BOOT_SECTOR = b"\xfa\xf4\xeb\xfd"


def job(job_id: str, driver: str, config: dict[str, Any], *, kind: str = "service", **task: Any) -> dict[str, Any]:
    main = {"Name": "main", "Driver": driver, "Config": config, "Resources": {"CPU": 50, "MemoryMB": 128}, **task}
    group = {"Name": "g", "Count": 1, "Tasks": [main], "RestartPolicy": NO_RESTART}
    return {"ID": job_id, "Name": job_id, "Type": kind, "TaskGroups": [group]}


def shell(script: str, **config: Any) -> dict[str, Any]:
    return {"command": "sh", "args": ["-c", script], **config}


def events_of(alloc: dict[str, Any]) -> str:
    return " ".join(event["DisplayMessage"] for event in alloc["TaskStates"]["main"]["Events"])


def ended(agent: Agent, job_id: str, status: str) -> dict[str, Any]:
    """The job's allocation, when it has come to an end."""
    return wait_for(f"{job_id} {status}", lambda: [a for a in agent.allocs(job_id) if a["ClientStatus"] == status])[0]


def cgroups_of(alloc_id: str) -> list[Path]:
    """Cgroups of an allocation, in every hierarchy."""
    return [Path(folder) / name for folder, names, _ in os.walk("/sys/fs/cgroup") for name in names if alloc_id in name]


def processes_in(folders: list[Path]) -> set[int]:
    found: set[int] = set()
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):  # it has just gone
            found |= {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
    return found


def is_mounted(alloc_id: str) -> bool:
    return alloc_id in Path("/proc/self/mountinfo").read_text()


@pytest.fixture(scope="module")
def lasting_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("lasting")
    with running_agent(folder, data_dir=folder / "data") as agent:
        yield agent


def test_the_drivers_are_healthy_and_tell_their_versions(lasting_agent: Agent) -> None:
    (node,) = lasting_agent.get("/v1/nodes")

    def attributes() -> dict[str, str] | None:
        found: dict[str, str] = lasting_agent.get(f"/v1/node/{node['ID']}")["Attributes"]
        return found if "driver.java.version" in found and "driver.qemu.version" in found else None

    assert wait_for("versions of java and qemu", attributes)["driver.exec"] == "1"


def test_an_exec_task_runs_isolated_answers_commands_and_leaves_nothing(lasting_agent: Agent) -> None:
    agent = lasting_agent
    register(agent, job("cell", "exec", shell(TICKER)))
    (alloc,) = agent.running("cell", 1)
    wait_for("output", lambda: "nobody /local" in agent.cli("alloc", "logs", alloc["ID"]).stdout)

    agent.call("DELETE", "/v1/job/cell")
    ended(agent, "cell", "complete")
    agent.call("PUT", "/v1/system/gc")
    wait_for("no cgroup", lambda: not cgroups_of(alloc["ID"]))
    wait_for("no mount", lambda: not is_mounted(alloc["ID"]))


def test_an_exec_task_keeps_its_process_over_the_death_of_the_agent(tmp_path: Path) -> None:
    with running_agent(tmp_path, data_dir=tmp_path / "data") as agent:
        register(agent, job("lasting", "exec", shell(TICKER)))
        register(
            agent, job("ending", "exec", shell("while [ ! -e /alloc/go ]; do sleep 0.05; done; exit 3"), kind="batch")
        )
        (alloc,) = agent.running("lasting", 1)
        (ending,) = agent.running("ending", 1)
        pids = processes_in(cgroups_of(alloc["ID"]))

        agent.kill()
        (tmp_path / "data" / "alloc" / ending["ID"] / "alloc" / "go").touch()
        assert any(pid_is_alive(pid) for pid in pids)
        agent.start()

        (again,) = agent.running("lasting", 1)
        assert (again["ID"], again["TaskStates"]["main"]["Restarts"]) == (alloc["ID"], 0)
        assert pids & processes_in(cgroups_of(alloc["ID"]))
        assert "Exit Code: 3" in events_of(ended(agent, "ending", "failed"))


@pytest.mark.parametrize("driver", ["exec", "raw_exec"])
def test_tasks_that_a_restart_of_the_machine_ended_are_started_again(tmp_path: Path, driver: str) -> None:
    with running_agent(tmp_path, data_dir=tmp_path / "data") as agent:
        again = job("again", driver, shell("echo begun; exec sleep 1000"))
        again["TaskGroups"][0]["RestartPolicy"] = NO_RESTART | {"Attempts": 3, "Delay": 100_000_000}
        register(agent, again)
        (alloc,) = agent.running("again", 1)
        wait_for("output", lambda: agent.cli("alloc", "logs", alloc["ID"]).stdout == "begun\n")
        before = processes_in(cgroups_of(alloc["ID"]))

        agent.kill()
        keepers = {psutil.Process(pid).ppid() for pid in before} - before - {0, 1}
        for pid in (*keepers, *before):
            with contextlib.suppress(ProcessLookupError):  # it ended with its keeper
                os.kill(pid, signal.SIGKILL)
        wait_for("no process", lambda: not any(map(pid_is_alive, before)))
        agent.start()

        wait_for("output", lambda: agent.cli("alloc", "logs", alloc["ID"]).stdout == "begun\nbegun\n")
        now = processes_in(cgroups_of(alloc["ID"])) - before
        assert now and all(map(pid_is_alive, now))
        (found,) = agent.running("again", 1)
        assert (found["ID"], found["TaskStates"]["main"]["Restarts"]) == (alloc["ID"], 1)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user can pass through, as the parents of a data directory usually are."""
    with tempfile.TemporaryDirectory(prefix="yurt-e2e-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def test_a_task_in_a_user_namespace_runs_with_its_secrets_and_answers_commands(reachable: Path) -> None:
    plugin = [{"exec": {"config": {"user_namespace": {"first_host_id": 1_000_000}}}}]
    script = (
        'cat /proc/self/uid_map; echo kept > "$NOMAD_SECRETS_DIR/word" && cat "$NOMAD_SECRETS_DIR/word"; sleep 1000'
    )
    with running_agent(reachable, data_dir=reachable / "data", extra={"plugin": plugin}) as agent:
        register(agent, job("mapped", "exec", shell(script, userns_mode="private")))
        (alloc,) = agent.running("mapped", 1)
        wait_for("output", lambda: "kept" in agent.cli("alloc", "logs", alloc["ID"]).stdout)
        assert agent.cli("alloc", "logs", alloc["ID"]).stdout.split() == ["0", "1000000", "65536", "kept"]
        assert agent.cli("alloc", "exec", "-t=false", alloc["ID"], "id", "-un").stdout == "nobody\n"
        owners = {os.stat(f"/proc/{pid}").st_uid for pid in processes_in(cgroups_of(alloc["ID"]))}
        assert owners == {1_065_534}
        agent.call("DELETE", "/v1/job/mapped")
        ended(agent, "mapped", "complete")


def test_what_tasks_leave_is_out_of_reach_for_other_users(reachable: Path) -> None:
    extra = {"client": {"enabled": True, "options": {"user.denylist": "games", "driver.raw_exec.enable": "1"}}}
    leaving = shell("cp /bin/bash /local/shell && chmod 4755 /local/shell && sleep 1000")
    with running_agent(reachable, data_dir=reachable / "data", extra=extra) as agent:
        register(agent, job("leaving", "exec", leaving, User="root"))
        register(agent, job("plain", "raw_exec", shell("id -un; pwd; sleep 1000"), User="nobody"))
        (alloc,) = agent.running("leaving", 1)
        (plain,) = agent.running("plain", 1)
        program = reachable / "data" / "alloc" / alloc["ID"] / "main" / "local" / "shell"
        wait_for("the program", lambda: program.exists() and program.stat().st_mode & 0o4000)
        wait_for("output", lambda: agent.cli("alloc", "logs", plain["ID"]).stdout.startswith("nobody"))
        ran = subprocess.run(
            ["sh", "-c", f"{program} -p -c 'id -u'"], check=False, user=54321, group=54321, extra_groups=[],
            capture_output=True, text=True,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (126, ""), ran.stderr
        for name in ("leaving", "plain"):
            agent.call("DELETE", f"/v1/job/{name}")
            ended(agent, name, "complete")


def test_a_task_that_takes_too_much_memory_is_told_so(lasting_agent: Agent) -> None:
    hog = job("hog", "exec", shell("head -c 300m /dev/zero | tail"), kind="batch")
    hog["TaskGroups"][0]["Tasks"][0]["Resources"]["MemoryMB"] = 32
    register(lasting_agent, hog)
    alloc = ended(lasting_agent, "hog", "failed")
    details = [event["Details"] for event in alloc["TaskStates"]["main"]["Events"] if event["Type"] == "Terminated"]
    assert details[-1]["oom_killed"] == "true", details


def test_a_task_that_asks_for_more_than_is_allowed_fails_with_the_reason(lasting_agent: Agent) -> None:
    for name, asked, reason in (
        ("pids", {"pid_mode": "${NOMAD_META_mode}"}, "allowed_modes"),
        ("caps", {"cap_add": ["sys_admin"]}, "allow_caps"),
    ):
        spec = job(name, "exec", shell("true", **asked), kind="batch", Meta={"mode": "host"})
        register(lasting_agent, spec)
        assert reason in events_of(ended(lasting_agent, name, "failed"))


def test_root_is_refused_to_an_exec_task(lasting_agent: Agent) -> None:
    register(lasting_agent, job("rootly", "exec", shell("true"), kind="batch", User="root"))
    assert "user.denylist" in events_of(ended(lasting_agent, "rootly", "failed"))


@pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed (apt install default-jre-headless)")
def test_a_java_task_runs(lasting_agent: Agent) -> None:
    config = {"class": "jdk.internal.misc.VM", "jvm_options": ["-version"]}
    register(lasting_agent, job("jvm", "java", config, kind="batch"))
    alloc = ended(lasting_agent, "jvm", "complete")
    assert "version" in lasting_agent.cli("alloc", "logs", "-stderr", alloc["ID"]).stdout


@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed")
def test_a_virtual_machine_runs(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(WAIT_IN_BOOT_SECTOR.ljust(510, b"\0") + b"\x55\xaa")
    plugin = [{"qemu": {"config": {"image_paths": [str(tmp_path)]}}}]
    with running_agent(tmp_path, extra={"plugin": plugin}) as agent:
        register(
            agent, job("vm", "qemu", {"image_path": str(image), "graceful_shutdown": True}, KillTimeout=500_000_000)
        )
        (alloc,) = agent.running("vm", 1)
        assert processes_in(cgroups_of(alloc["ID"]))
        agent.call("DELETE", "/v1/job/vm")
        ended(agent, "vm", "complete")


@pytest.mark.skipif(PARTS is None, reason="no kernel and guest agent for a guest: .ci/run unpacks them")
@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed")
def test_a_command_runs_in_a_virtual_machine_by_its_guest_agent(tmp_path: Path) -> None:
    assert PARTS is not None
    (tmp_path / "initramfs").write_bytes(initramfs(PARTS))
    (tmp_path / "disk.img").write_bytes(WAIT_IN_BOOT_SECTOR.ljust(510, b"\0") + b"\x55\xaa")
    plugin = {"qemu": {"config": {"args_allowlist": ["*"], "image_paths": [str(tmp_path)]}}}
    boot = ["-kernel", str(PARTS.kernel), "-initrd", str(tmp_path / "initramfs"), "-append", "console=ttyS0 quiet"]
    config = {"image_path": str(tmp_path / "disk.img"), "guest_agent": True, "args": boot}
    with running_agent(tmp_path, extra={"plugin": plugin}) as agent:
        register(agent, job("guest", "qemu", config, Resources={"CPU": 2000, "MemoryMB": 128}))
        (alloc,) = agent.running("guest", 1)
        wait_for("a guest", lambda: "guest is up" in agent.cli("alloc", "logs", alloc["ID"]).stdout)
        script = ("sh", "-c", "cat /proc/sys/kernel/ostype; echo oh >&2; exit 4")
        done = agent.cli("alloc", "exec", "-t=false", alloc["ID"], *script)
        assert (done.returncode, done.stdout, done.stderr) == (4, "Linux\n", "oh\n")
        absent = agent.cli("alloc", "exec", "-t=false", alloc["ID"], "/no/such/program")
        assert absent.returncode == 1 and "/no/such/program" in absent.stderr


def test_nothing_outlives_a_dev_agent_that_is_killed(tmp_path: Path) -> None:
    with running_agent(tmp_path) as agent:
        register(agent, job("short", "exec", shell(TICKER)))
        (alloc,) = agent.running("short", 1)
        folders = cgroups_of(alloc["ID"])
        parents = {folder.parent for folder in folders}
        assert processes_in(folders)
        agent.kill()
        wait_for("no cgroup of the run", lambda: not any(parent.exists() for parent in parents))
        wait_for("no mount", lambda: not is_mounted(alloc["ID"]))


def test_chroot_env_is_all_that_a_task_sees_of_the_host(tmp_path: Path) -> None:
    """The client's map takes the place of the usual folders, and may show one at another place."""
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "word").write_text("seen")
    shown = {"/bin": "/bin", "/usr": "/usr", "/lib": "/lib", "/lib64": "/lib64", str(tmp_path / "shown"): "/srv/here"}
    client = {"enabled": True, "chroot_env": shown}
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra={"client": client}) as agent:
        script = "cat /srv/here/word; ls /etc/passwd; touch /srv/here/x"
        register(agent, job("seen", "exec", {"command": "/bin/sh", "args": ["-c", script]}, kind="batch"))
        alloc = wait_for(
            "the task's end",
            lambda: [each for each in agent.allocs("seen") if each["ClientStatus"] in ("complete", "failed")],
        )[0]["ID"]
        assert agent.cli("alloc", "logs", alloc).stdout == "seen"
        errors = agent.cli("alloc", "logs", "-stderr", alloc).stdout
        assert "/etc/passwd" in errors
        assert "Read-only file system" in errors
    assert not (tmp_path / "shown" / "x").exists()
