"""The system call filter of isolated tasks, in the format of an OCI runtime. Pure.

All system calls except those in `syscalls` fail with EPERM. Four calls are decided by their arguments: `clone` and
`unshare` may not make name spaces, `personality` takes the harmless values, `socket` makes no socket of the kernel's
crypto interface or of the host's hypervisor. A filter cannot read the arguments of `clone3`, which are passed by
pointer, so it answers ENOSYS, upon which C libraries call `clone`. runc makes calls that are newer than all those
listed answer ENOSYS as well.

The runtime compiles the filter at each start, for each architecture: 3 ms for the machine's own, 5 ms more for its
32-bit programs. So the rules for 32-bit programs are added only on a machine that has their loader, or for a task whose
command is one. Other 32-bit programs, and programs that use the x32 numbers of x86-64 kernels, are killed (SIGSYS).
32-bit programs make sockets by `socketcall`, whose arguments are passed by pointer too.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Iterable
from typing import Any

import msgspec

from yurt.executor.oci.syscalls import BY_CAPABILITY, OF_32BIT, OTHER_PROCESSES, USUAL

ALLOW, REFUSE = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
EQUAL, BELOW, ABOVE, MASKED = "SCMP_CMP_EQ", "SCMP_CMP_LT", "SCMP_CMP_GT", "SCMP_CMP_MASKED_EQ"
ARCHITECTURES = {"x86_64": ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86"), "aarch64": ("SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM")}
"""Own and 32-bit programs by machine; on others the filter covers only the machine's own programs."""
LOADERS_32BIT = ("/lib/ld-linux.so.2", "/lib/ld-linux-armhf.so.3")
ELF_32BIT = b"\x7fELF\x01"
CLONE_FLAGS_SECOND = ("s390x",)
NEW_NAMESPACES = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000
NEW_TIME_NAMESPACE = 0x00000080
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""PER_LINUX and PER_LINUX32, each without and with UNAME26; 0xFFFFFFFF reads the present value."""
AF_ALG, AF_VSOCK = 38, 40
PTRACE_SAFE_SINCE = (4, 8)


@functools.lru_cache(maxsize=64)
def encoded(
    machine: str, kernel: tuple[int, int], capabilities: frozenset[str], *, with_32bit: bool = False
) -> msgspec.Raw:
    """The filter as JSON, cached for each set of capabilities."""
    made = profile(machine=machine, kernel=kernel, capabilities=capabilities, with_32bit=with_32bit)
    return msgspec.Raw(msgspec.json.encode(made))


def profile(
    *, machine: str, kernel: tuple[int, int], capabilities: Iterable[str], with_32bit: bool = False
) -> dict[str, Any]:
    """The filter of a task with these capabilities, as `linux.seccomp` of an OCI configuration."""
    by_capability = {name for each in capabilities for name in BY_CAPABILITY.get(each, ())}
    by_capability |= set(OTHER_PROCESSES) if kernel >= PTRACE_SAFE_SINCE else set()
    unknown = {"names": ["clone3"], "action": REFUSE, "errnoRet": errno.ENOSYS}
    by_argument = [each for each in (*argument_rules(machine), unknown) if each["names"][0] not in by_capability]
    usual = USUAL if machine in ARCHITECTURES and not with_32bit else (*USUAL, *OF_32BIT)
    architectures = ARCHITECTURES.get(machine, ())[: 2 if with_32bit else 1]
    return {
        "defaultAction": REFUSE,
        "defaultErrnoRet": errno.EPERM,
        **({"architectures": list(architectures)} if architectures else {}),
        "syscalls": [rule(sorted({*usual, *by_capability})), *by_argument],
    }


def argument_rules(machine: str) -> list[dict[str, Any]]:
    """The rules with conditions on arguments."""
    flags = 1 if machine in CLONE_FLAGS_SECOND else 0
    return [
        rule(["clone"], argument(MASKED, NEW_NAMESPACES, 0, index=flags)),
        rule(["unshare"], argument(MASKED, NEW_NAMESPACES | NEW_TIME_NAMESPACE, 0)),
        *(rule(["personality"], argument(EQUAL, value)) for value in PERSONALITIES),
        rule(["socket"], argument(BELOW, AF_ALG)),
        rule(["socket"], argument(EQUAL, AF_ALG + 1)),
        rule(["socket"], argument(ABOVE, AF_VSOCK)),
    ]


def rule(names: list[str], *arguments: dict[str, Any]) -> dict[str, Any]:
    """A rule that allows calls, optionally with conditions on their arguments."""
    return {"names": names, "action": ALLOW, **({"args": list(arguments)} if arguments else {})}


def argument(operator: str, value: int, value_two: int = 0, *, index: int = 0) -> dict[str, Any]:
    """A condition on one argument; a masked one compares `argument & value` with `value_two`."""
    return {"index": index, "value": value, "valueTwo": value_two, "op": operator}
