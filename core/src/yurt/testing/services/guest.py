"""A virtual machine that answers: Debian's kernel with busybox and QEMU's guest agent in an initramfs.

The kernel and the agent come from Debian's packages (linux-image-cloud-amd64, qemu-guest-agent), installed or unpacked
below `ROOTS`; nothing of them runs on the host.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOTS = (Path("/"), Path("/opt/yurt-guest"))
MODULES = ("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_console")
APPLETS = ("sh", "mount", "insmod", "cat", "echo", "sleep", "kill", "seq", "mkdir", "grep", "cut", "ps", "poweroff")
INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in {modules}; do insmod /modules/$module.ko; done
while [ ! -e /sys/class/virtio-ports/*/name ]; do sleep 0.05; done
port=$(grep -l org.qemu.guest_agent.0 /sys/class/virtio-ports/*/name | cut -d/ -f5)
mkdir -p /var/run /tmp
echo guest is up
exec qemu-ga --method=virtio-serial --path=/dev/$port
"""
DIRECTORY, FILE, LINK = 0o040755, 0o100755, 0o120777


class GuestParts(NamedTuple):
    """Files of this host: a kernel, its modules in load order, and the guest agent."""

    kernel: Path
    modules: tuple[Path, ...]
    agent: Path


def find_parts() -> GuestParts | None:
    """The files installed or unpacked on this host; None when one is missing."""
    for root in ROOTS:
        for kernel in sorted((root / "boot").glob("vmlinuz-*"), reverse=True):
            drivers = root / "lib" / "modules" / kernel.name.removeprefix("vmlinuz-") / "kernel" / "drivers"
            modules = [next(drivers.rglob(f"{name}.ko"), None) for name in MODULES]
            agent = shutil.which("qemu-ga", path=os.pathsep.join(str(each / "usr/sbin") for each in ROOTS))
            if agent and None not in modules:
                return GuestParts(kernel, tuple(each for each in modules if each), Path(agent))
    return None


def libraries(program: Path) -> list[Path]:
    """The shared libraries of a program."""
    output = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    words = (line.split("=>")[-1].split() for line in output.splitlines())
    return [Path(each[0]) for each in words if each and each[0].startswith("/")]


def initramfs(parts: GuestParts) -> bytes:
    """The initramfs, which is the guest's root file system."""
    archive = CpioArchive()
    archive.add("init", INIT.format(modules=" ".join(MODULES)).encode())
    archive.add("bin/busybox", Path(shutil.which("busybox") or "").read_bytes())
    for applet in APPLETS:
        archive.add(f"bin/{applet}", b"busybox", mode=LINK)
    archive.add("bin/qemu-ga", parts.agent.read_bytes())
    for module in parts.modules:
        archive.add(f"modules/{module.name}", module.read_bytes())
    for library in libraries(parts.agent):
        archive.add(str(library).lstrip("/"), library.read_bytes())
    for name in ("proc", "sys", "dev"):
        archive.folder(name)
    return archive.packed()


class CpioArchive:
    """A cpio archive in the format that Linux unpacks (newc)."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._folders: set[str] = set()
        self._count = 0

    def folder(self, name: str) -> None:
        """Add a folder and its parents."""
        if name in ("", ".") or name in self._folders:
            return
        self.folder(os.path.dirname(name))
        self._folders.add(name)
        self._entry(name, DIRECTORY, b"")

    def add(self, name: str, data: bytes, *, mode: int = FILE) -> None:
        """Add a file or a symbolic link."""
        self.folder(os.path.dirname(name))
        self._entry(name, mode, data)

    def _entry(self, name: str, mode: int, data: bytes) -> None:
        self._count += 1
        fields = (self._count, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        self._put(b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0")
        self._put(data)

    def _put(self, data: bytes) -> None:
        self._data += data + bytes(-(len(self._data) + len(data)) % 4)

    def packed(self) -> bytes:
        """The compressed archive."""
        self._entry("TRAILER!!!", 0, b"")
        return gzip.compress(bytes(self._data), 1)
