"""Disk images: which files a task may use, what they lead to, and their format.

A disk image is input from a stranger. It may be a link out of the task's directory; a qcow2 image may name any file of
the host as the one it is laid over, and a guest may write such a header onto its raw disk. So links are resolved, the
chain of backing files is followed, and the format is told to QEMU instead of being guessed by it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence

from yurt.sdk.errors import DriverError

from yurt_driver_qemu.config import Image

FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CHAIN_MAX = 16
HEADER_BYTES = 512
BACKING_NAME_BYTES_MAX = 1023
EXTERNAL_DATA_FILE = 1 << 2
QCOW_MAGIC = b"QFI\xfb"
VDI_MAGIC, VDI_MAGIC_AT = b"\x7f\x10\xda\xbe", 64
SELF_CONTAINED = {b"vhdxfile": "vhdx", b"conectix": "vpc"}
REFUSED = {
    b"KDMV": "VMDK", b"COWD": "VMDK", b"# Disk Descripto": "VMDK", b"QED\0": "QED", b"WithoutFreeSpace": "Parallels",
    b"WithouFreSpacExt": "Parallels",
}  # fmt: skip
PROTOCOL = re.compile(r"[A-Za-z0-9+.-]+:")


def find_image(asked: str, *, task_dir: str, alloc_dir: str, image_paths: Sequence[str]) -> Image:
    """The image that a task asks for, relative to its directory; raises DriverError when it may not use it."""
    if "\0" in asked:
        raise DriverError("image_path contains a NUL character")
    path = real_path(task_dir, asked)
    roots = tuple(os.path.realpath(root) for root in (alloc_dir, *image_paths))
    head = checked_header(path, roots, asked=asked)
    check_chain(path, head, roots)
    return Image(path=path, format=format_of(head, path))


def real_path(folder: str, name: str) -> str:
    """A path with its links followed; raises DriverError when another task changes them meanwhile."""
    try:
        return os.path.realpath(os.path.join(folder, name))
    except OSError as error:
        raise DriverError(f'image "{name}" changed while its links were followed: {error.strerror}') from None


def checked_header(path: str, roots: tuple[str, ...], *, asked: str) -> bytes:
    """The first bytes of a file that lies in one of the allowed folders."""
    if not any(os.path.commonpath((path, root)) == root for root in roots):
        raise DriverError(
            f'image "{asked}" lies outside of the allocation ({path}); fetch it with an artifact, or add its folder to '
            'image_paths in plugin "qemu"'
        )
    try:
        fd = os.open(path, FLAGS)
    except OSError as error:
        raise DriverError(f'image "{asked}" cannot be read: {error.strerror} ({path})') from None
    try:
        mode = os.fstat(fd).st_mode
        is_disk = stat.S_ISREG(mode) or (stat.S_ISBLK(mode) and os.path.commonpath((path, roots[0])) != roots[0])
        if not is_disk:
            raise DriverError(f'image "{asked}" is no file ({path}); give the path of a disk image')
        return os.read(fd, HEADER_BYTES)
    finally:
        os.close(fd)


def check_chain(path: str, head: bytes, roots: tuple[str, ...]) -> None:
    """Follow the backing files: each must lie in an allowed folder."""
    for _ in range(CHAIN_MAX):
        backing = backing_file(path, head)
        if not backing:
            return
        path = real_path(os.path.dirname(path), backing)
        head = checked_header(path, roots, asked=backing)
        format_of(head, path)
    raise DriverError(f"the image {path} is laid over more than {CHAIN_MAX} others; flatten it with `qemu-img convert`")


def backing_file(path: str, head: bytes) -> str:
    """The file that a qcow image is laid over; empty for none. Raises DriverError for what cannot be checked."""
    if not head.startswith(QCOW_MAGIC) or len(head) < 80:
        return ""
    version, offset, size = (int.from_bytes(head[at : at + width]) for at, width in ((4, 4), (8, 8), (16, 4)))
    if version >= 3 and int.from_bytes(head[72:80]) & EXTERNAL_DATA_FILE:
        raise DriverError(f"the image {path} keeps its data in another file; flatten it with `qemu-img convert`")
    if not offset:
        return ""
    if size > BACKING_NAME_BYTES_MAX:
        raise DriverError(f"the image {path} is damaged: the name of its backing file has {size} bytes")
    try:
        with os.fdopen(os.open(path, FLAGS), "rb") as file:
            file.seek(offset)
            name = (file.read(size) or b"").decode(errors="surrogateescape")
    except (OSError, OverflowError) as error:
        raise DriverError(f"the name of the backing file of the image {path} cannot be read: {error}") from None
    if PROTOCOL.match(name) or "\0" in name:
        raise DriverError(f'the image {path} is laid over "{name}", which is no plain file; flatten it')
    return name


def format_of(head: bytes, path: str) -> str:
    """The format that a header tells; what has none is a raw disk."""
    for magic, kind in REFUSED.items():
        if head.startswith(magic):
            raise DriverError(f"{path} is a {kind} image; convert it with `qemu-img convert -O qcow2`")
    if head.startswith(QCOW_MAGIC):
        return "qcow2" if int.from_bytes(head[4:8]) >= 2 else "qcow"
    if head[VDI_MAGIC_AT : VDI_MAGIC_AT + 4] == VDI_MAGIC:
        return "vdi"
    return next((kind for magic, kind in SELF_CONTAINED.items() if head.startswith(magic)), "raw")
