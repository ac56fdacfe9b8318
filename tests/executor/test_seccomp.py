"""The filter of system calls, as an OCI runtime reads it."""

from __future__ import annotations

import errno
from typing import Any

import msgspec
import pytest
from yurt.executor.oci import syscalls
from yurt.executor.oci.seccomp import ALLOW, encoded, profile

KERNEL = (6, 1)
NEVER = (
    "add_key", "keyctl", "request_key", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "uselib", "_sysctl", "sysfs", "ustat", "nfsservctl", "vm86", "vm86old", "create_module", "query_module",
)  # fmt: skip


def rules(
    *capabilities: str, machine: str = "x86_64", kernel: tuple[int, int] = KERNEL, with_32bit: bool = False
) -> dict[str, list[Any]]:
    """The rules by call."""
    found: dict[str, list[Any]] = {}
    made = profile(machine=machine, kernel=kernel, capabilities=capabilities, with_32bit=with_32bit)
    for each in made["syscalls"]:
        for name in each["names"]:
            found.setdefault(name, []).append(each)
    return found


def free(*capabilities: str, **given: Any) -> set[str]:
    """The calls that are allowed whatever their arguments."""
    return {
        name for name, all_of in rules(*capabilities, **given).items()
        if any(each["action"] == ALLOW and "args" not in each for each in all_of)
    }  # fmt: skip


def test_what_is_not_listed_is_refused() -> None:
    found = profile(machine="x86_64", kernel=KERNEL, capabilities=())
    assert (found["defaultAction"], found["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", errno.EPERM)
    assert not free() & {*NEVER, *syscalls.MOUNTS, "bpf", "clone", "unshare", "setns", "perf_event_open", "reboot"}


def test_no_capability_opens_what_no_task_may_do() -> None:
    every = {name for names in syscalls.BY_CAPABILITY.values() for name in names}
    assert not every & set(NEVER)
    assert not {*syscalls.USUAL, *syscalls.OF_32BIT} & set(NEVER)


@pytest.mark.parametrize("capability", sorted(syscalls.BY_CAPABILITY))
def test_a_capability_opens_its_calls_and_no_others(capability: str) -> None:
    assert free(capability) - free() >= set(syscalls.BY_CAPABILITY[capability]) - set(syscalls.OTHER_PROCESSES)
    assert free(capability) - free() <= set(syscalls.BY_CAPABILITY[capability])


def test_no_call_of_a_capability_is_among_the_usual_ones() -> None:
    every = {name for names in syscalls.BY_CAPABILITY.values() for name in names}
    assert not every & set(syscalls.USUAL)
    assert len(syscalls.USUAL) == len(set(syscalls.USUAL))


def test_tracing_waits_for_kernels_that_keep_the_filter() -> None:
    assert "ptrace" in free()
    assert "ptrace" not in free(kernel=(4, 7))
    assert "ptrace" in free("CAP_SYS_PTRACE", kernel=(4, 7))


def test_clone3_is_unknown_until_namespaces_may_be_made() -> None:
    (rule,) = rules()["clone3"]
    assert (rule["action"], rule["errnoRet"]) == ("SCMP_ACT_ERRNO", errno.ENOSYS)
    assert {"clone", "clone3", "unshare"} <= free("CAP_SYS_ADMIN")
    assert all("args" not in rule for rule in rules("CAP_SYS_ADMIN")["clone"])


def test_programs_of_half_the_word_size_are_filtered_where_they_run() -> None:
    def architectures(machine: str) -> Any:
        return profile(machine=machine, kernel=KERNEL, capabilities=(), with_32bit=True).get("architectures")

    assert architectures("x86_64") == ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]
    assert architectures("aarch64") == ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"]
    assert architectures("riscv64") is None
    assert profile(machine="x86_64", kernel=KERNEL, capabilities=())["architectures"] == ["SCMP_ARCH_X86_64"]


def test_calls_of_half_the_word_size_are_listed_where_they_can_be_made() -> None:
    assert not free() & set(syscalls.OF_32BIT)
    assert not set(syscalls.USUAL) & set(syscalls.OF_32BIT)
    assert free(with_32bit=True) >= set(syscalls.OF_32BIT)
    assert free(machine="riscv64") >= set(syscalls.OF_32BIT)


def test_the_flags_of_clone_are_where_the_machine_has_them() -> None:
    assert rules()["clone"][0]["args"][0]["index"] == 0
    assert rules(machine="s390x")["clone"][0]["args"][0]["index"] == 1


def test_the_filter_is_written_once_for_each_set_of_rights() -> None:
    first = encoded("x86_64", KERNEL, frozenset(("CAP_KILL",)))
    assert encoded("x86_64", KERNEL, frozenset(("CAP_KILL",))) is first
    assert msgspec.json.decode(first) == profile(machine="x86_64", kernel=KERNEL, capabilities=("CAP_KILL",))
