"""The isolation of an exec task: rights, system calls, the host's secrets, user namespaces."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.executor.oci.seccomp import LOADERS_32BIT
from yurt.sdk.errors import DriverError
from yurt.sdk.value import replace, seconds

from .conftest import Cell

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="isolation needs Linux"),
    pytest.mark.skipif(os.geteuid() != 0, reason="isolation takes root"),
    pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed (apt install runc)"),
    pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="numbers of other machines' calls"),
]
CAP_CHOWN, CAP_NET_RAW = 1 << 0, 1 << 13
SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
NUMBERS = {
    "x86_64": {
        "mount": 165, "unshare": 272, "setns": 308, "keyctl": 250, "add_key": 248, "request_key": 249, "bpf": 321,
        "perf_event_open": 298, "kexec_load": 246, "reboot": 169, "swapon": 167, "clock_settime": 227,
        "userfaultfd": 323, "open_by_handle_at": 304, "init_module": 175, "clone": 56, "clone3": 435,
        "io_uring_setup": 425, "pivot_root": 155, "fsopen": 430, "socket": 41, "personality": 135, "getpid": 39,
    },
    "aarch64": {
        "mount": 40, "unshare": 97, "setns": 268, "keyctl": 219, "add_key": 217, "request_key": 218, "bpf": 280,
        "perf_event_open": 241, "kexec_load": 104, "reboot": 142, "swapon": 224, "clock_settime": 112,
        "userfaultfd": 282, "open_by_handle_at": 265, "init_module": 105, "clone": 220, "clone3": 435,
        "io_uring_setup": 425, "pivot_root": 41, "fsopen": 430, "socket": 198, "personality": 92, "getpid": 172,
    },
}.get(platform.machine(), {})  # fmt: skip
CLONE_NEWUSER, CLONE_NEWNS, CLONE_FS = 0x10000000, 0x00020000, 0x00000200
SIGCHLD = 17
AF_ALG, AF_VSOCK, AF_INET, SOCK_DGRAM = 38, 40, 2, 2
NO_ARGUMENTS = (
    "mount", "setns", "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "kexec_load", "reboot", "swapon",
    "clock_settime", "userfaultfd", "open_by_handle_at", "init_module", "io_uring_setup", "pivot_root", "fsopen",
)  # fmt: skip
LOCAL_USER = 54321


def calls(*syscalls: tuple[str, *tuple[int, ...]]) -> str:
    """A script that makes system calls and prints the error number of each, 0 for none."""
    listed = (", ".join(map(str, [NUMBERS[name], *arguments, *[0] * 5][:6])) for name, *arguments in syscalls)
    lines = "".join(f'print((syscall({each}) == -1 ? $!+0 : 0), "\\n");' for each in listed)
    return f"perl -e '$| = 1; {lines}'"


async def answers(cell: Cell, *syscalls: tuple[str, *tuple[int, ...]], **config: Any) -> dict[str, int]:
    """The error numbers of system calls in a task."""
    said = await cell.said(calls(*syscalls), **config)
    return dict(zip((name for name, *_ in syscalls), map(int, said.split()), strict=True))


async def rights(cell: Cell, **config: Any) -> dict[str, int]:
    """The sets of capabilities of a task."""
    said = await cell.said("grep ^Cap /proc/self/status", **config)
    return {name.rstrip(":"): int(value, 16) for name, value in (line.split() for line in said.splitlines())}


async def test_a_user_other_than_root_has_no_capability_in_any_set(cell: Cell) -> None:
    assert await rights(cell) == dict.fromkeys(SETS, 0)


async def test_a_user_other_than_root_has_what_the_job_asks_for_by_name(cell: Cell, generous: Cell) -> None:
    assert await rights(cell, cap_drop=["all"], cap_add=["chown"]) == dict.fromkeys(SETS, CAP_CHOWN)
    assert await rights(generous, cap_add=["net_raw"]) == dict.fromkeys(SETS, CAP_NET_RAW)


async def test_root_has_the_allowed_rights_and_gives_none_of_them_on(generous: Cell) -> None:
    found = await rights(generous, user="root")
    assert found["CapEff"] & CAP_CHOWN and not found["CapEff"] & CAP_NET_RAW
    assert found["CapEff"] == found["CapPrm"] == found["CapBnd"]
    assert (found["CapInh"], found["CapAmb"]) == (0, 0)


@pytest.mark.parametrize("user", ["nobody", "root"])
async def test_system_calls_beyond_an_ordinary_program_are_refused(generous: Cell, user: str) -> None:
    found = await answers(generous, *((name,) for name in NO_ARGUMENTS), user=user)
    assert found == dict.fromkeys(NO_ARGUMENTS, errno.EPERM)


async def test_a_call_that_is_newer_than_the_filter_is_unknown_so_that_programs_fall_back(cell: Cell) -> None:
    assert await cell.said("perl -e 'print syscall(1000) == -1 ? $!+0 : 0'") == str(errno.ENOSYS)


async def test_no_namespace_can_be_made(cell: Cell) -> None:
    for flags in (CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWUSER | CLONE_NEWNS):
        found = await answers(cell, ("unshare", flags), ("clone", flags | SIGCHLD), ("clone3", 0, 0))
        assert found == {"unshare": errno.EPERM, "clone": errno.EPERM, "clone3": errno.ENOSYS}
    assert await answers(cell, ("unshare", CLONE_FS)) == {"unshare": 0}


async def test_sockets_of_the_kernels_crypto_interface_and_of_the_hypervisor_are_refused(cell: Cell) -> None:
    for family, expected in ((AF_ALG, errno.EPERM), (AF_VSOCK, errno.EPERM), (AF_INET, 0)):
        assert await answers(cell, ("socket", family, SOCK_DGRAM, 0)) == {"socket": expected}


async def test_a_personality_that_weakens_programs_is_refused(cell: Cell) -> None:
    assert await answers(cell, ("personality", 0x0040000)) == {"personality": errno.EPERM}
    assert await answers(cell, ("personality", 0xFFFFFFFF)) == {"personality": 0}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x32 is a way to call x86-64 kernels")
async def test_the_second_table_of_calls_is_no_way_around_the_filter(cell: Cell) -> None:
    x32 = 0x40000000
    result = await cell.script(f"exec perl -e 'syscall({x32 | NUMBERS['unshare']}, {CLONE_NEWUSER})'")
    assert result.signal == signal.SIGSYS


def program_of_half_the_word_size() -> bytes:
    """A program for i386 that exits with 7: an ELF header, one segment, `exit(7)`."""
    code = b"\xb8\x01\x00\x00\x00\xbb\x07\x00\x00\x00\xcd\x80"
    base, size = 0x08048000, 84 + len(code)
    header = struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    segment = struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 0x1000)
    return b"\x7fELF\x01\x01\x01" + bytes(9) + header + segment + code


@pytest.fixture
def old_program(cell: Cell) -> Path:
    """Such a program in the task's folder."""
    cell.request({"command": "x"})
    path = cell.folder / "alloc" / "web" / "local" / "old"
    path.write_bytes(program_of_half_the_word_size())
    path.chmod(0o755)
    try:
        subprocess.run([str(path)], check=False)
    except OSError:
        pytest.skip("this kernel runs no programs for i386")
    return path


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program is for i386")
async def test_a_command_of_half_the_word_size_runs_filtered(cell: Cell, old_program: Path) -> None:
    await cell.driver.start_task(cell.request({"command": "local/old"}))
    cell.started.append(cell.task_id)
    assert (await cell.wait(cell.task_id)).exit_code == 7


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program is for i386")
@pytest.mark.skipif(any(map(os.path.exists, LOADERS_32BIT)), reason="this machine runs such programs")
async def test_no_other_program_of_half_the_word_size_gets_around_the_filter(cell: Cell, old_program: Path) -> None:
    assert (await cell.said("/local/old; echo $?")).strip() == str(128 + signal.SIGSYS)


async def test_a_capability_opens_its_calls(generous: Cell) -> None:
    found = await answers(generous, ("mount",), ("keyctl", 99), cap_add=["sys_admin"], user="root")
    assert found["mount"] != errno.EPERM
    assert found["keyctl"] == errno.EPERM


async def test_a_command_that_is_run_in_the_task_is_filtered_too(cell: Cell) -> None:
    await cell.begin("exec sleep 1000")
    command = ("sh", "-c", calls(("unshare", CLONE_NEWUSER), ("keyctl",)))
    result = await cell.driver.exec_task(cell.task_id, command, timeout=seconds(20))
    assert [int(word) for word in result.stdout.split()] == [errno.EPERM, errno.EPERM]


async def test_the_filter_is_off_where_job_and_agent_agree(generous: Cell) -> None:
    found = await answers(generous, ("keyctl", 99), seccomp="unconfined")
    assert found["keyctl"] == errno.EOPNOTSUPP


async def test_ordinary_programs_run_under_the_filter(cell: Cell) -> None:
    script = """
        set -e
        perl -e 'if (my $p = fork) { waitpid $p, 0; print "forked " . ($? >> 8) . "\n" } else { exit 7 }'
        python3 -c 'import threading, socket, subprocess
t = threading.Thread(target=lambda: None); t.start(); t.join()
a, b = socket.socketpair(); a.send(b"x"); b.recv(1)
print(subprocess.run(["echo", "ran"], capture_output=True, text=True).stdout.strip())'
        sleep 0.01 | cat; tar cf - /etc/hostname 2>/dev/null | tar tf - > /tmp/list
        find /usr/bin -maxdepth 1 | sort | head -n1 | wc -l
    """
    assert (await cell.said(script)).split() == ["forked", "7", "ran", "1"]


async def test_the_hosts_secrets_show_nothing_even_to_root(generous: Cell, tmp_path: Path) -> None:
    script = (
        "for f in /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh/ssh_host_*_key; do [ -e $f ] && cat $f; done; true"
    )
    assert await generous.said(script, user="root") == ""
    listed = await generous.said("ls -A /etc/ssl/private /sys/firmware 2>/dev/null; cat /proc/keys; true", user="root")
    assert [line for line in listed.splitlines() if line and not line.endswith(":")] == []


@pytest.fixture
def configuration() -> Iterator[Path]:
    """A folder in /etc with a file that all can read and one that only root can read."""
    with tempfile.TemporaryDirectory(prefix="yurt-secret-", dir="/etc") as folder:
        Path(folder).chmod(0o755)
        for name, mode in (("password", 0o600), ("open", 0o644)):
            (Path(folder) / name).write_text(f"{name} text\n")
            (Path(folder) / name).chmod(mode)
        yield Path(folder)


async def test_a_file_of_the_system_configuration_that_others_cannot_read_shows_nothing(
    generous: Cell, configuration: Path
) -> None:
    said = await generous.said(f"cat {configuration}/password {configuration}/open", user="root")
    assert said == "open text\n"


@pytest.fixture
def shown_folder() -> Iterator[Path]:
    """A folder of the host that every user can enter."""
    with tempfile.TemporaryDirectory(prefix="yurt-shown-") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "data").mkdir()
        (Path(folder) / "data" / "key").write_text("secret")
        (Path(folder) / "public").write_text("open")
        yield Path(folder)


async def test_the_agents_own_files_show_nothing_where_their_folder_is_shown(
    generous: Cell, shown_folder: Path
) -> None:
    paths = replace(generous.context.paths, secret=(str(shown_folder / "data"),))
    shown = {each: each for each in ("/bin", "/lib", "/lib64", "/usr")} | {str(shown_folder): "/srv/shown"}
    generous.context = replace(generous.context, paths=paths, chroot_env=shown)
    await generous.throw_away()
    assert await generous.said("cat /srv/shown/public; ls -A /srv/shown/data", user="root") == "open"


def open_folders(cell: Cell) -> None:
    """Make the folders of an allocation as a client does: closed as a whole, writable for tasks inside."""
    cell.request({"command": "x"})
    for path, mode in (("alloc", 0o700), ("alloc/alloc", 0o777), ("alloc/web", 0o777), ("alloc/web/local", 0o777)):
        (cell.folder / path).chmod(mode)


@pytest.fixture
def local_user(cell: Cell) -> Iterator[None]:
    """Lets other users of the machine as far as the directory of the allocation, as an agent's data directory does."""
    folders = [cell.folder, *cell.folder.parents]
    before = {path: path.stat().st_mode for path in folders}
    for path in folders:
        path.chmod(path.stat().st_mode | 0o011)
    yield
    for path, mode in before.items():
        path.chmod(mode)


async def test_a_user_namespace_makes_root_an_ordinary_user_of_the_host(generous: Cell, local_user: None) -> None:
    script = "id -u; cat /proc/self/uid_map; echo hi > /alloc/made; cat /etc/shadow; touch /etc/x || echo refused"
    open_folders(generous)
    said = await generous.said(script, user="root", userns_mode="private")
    assert said.split() == ["0", "0", "1000000", "65536", "refused"]
    assert (generous.folder / "alloc" / "alloc" / "made").stat().st_uid == 1_000_000


async def test_a_task_in_a_user_namespace_has_its_secrets_its_user_and_commands(
    generous: Cell, local_user: None
) -> None:
    open_folders(generous)
    await generous.begin("echo x > /secrets/mine && echo y > /tmp/z && exec sleep 1000", userns_mode="private")
    command = ("sh", "-c", "id -un; cat /secrets/mine; unshare -U true || echo refused; ls -ld /secrets")
    result = await generous.driver.exec_task(generous.task_id, command, timeout=seconds(20))
    name, secret, refused, *listed = result.stdout.decode().split()
    assert (name, secret, refused, listed[2]) == ("nobody", "x", "refused", "nobody")


@pytest.mark.parametrize(("config", "reason"), [({"pid_mode": "host"}, "pid_mode"), ({"ipc_mode": "host"}, "ipc_mode")])
async def test_what_a_user_namespace_excludes_is_told(generous: Cell, config: dict[str, str], reason: str) -> None:
    with pytest.raises(DriverError, match=f'excludes {reason} = "host"'):
        await generous.begin("true", userns_mode="private", **config)


async def test_a_user_namespace_needs_ids_of_the_host(cell: Cell) -> None:
    with pytest.raises(DriverError, match="first_host_id"):
        await cell.begin("true", userns_mode="private")


def run_as_local_user(path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of the host as a user who has nothing to do with the agent."""
    shell = ["sh", "-c", f'"{path}" -p -c "id -u"']
    return subprocess.run(
        shell, check=False, user=LOCAL_USER, group=LOCAL_USER, extra_groups=[], capture_output=True, text=True
    )


SETUID_SHELL = "cp /bin/bash /local/shell && chmod 6755 /local/shell && ls -l /local/shell"


async def test_a_set_uid_program_that_a_task_leaves_is_out_of_reach_for_local_users(
    generous: Cell, local_user: None
) -> None:
    open_folders(generous)
    assert (await generous.said(SETUID_SHELL, user="root")).startswith("-rwsr-sr-x 1 root root")
    program = generous.folder / "alloc" / "web" / "local" / "shell"
    ran = run_as_local_user(program)
    assert (ran.returncode, ran.stdout) == (126, ""), ran.stderr
    (generous.folder / "alloc").chmod(0o711)
    assert run_as_local_user(program).stdout == "0\n"  # it is the closed folder that stands in the way
