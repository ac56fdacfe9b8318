"""Finds and checks the disk images of a task: permitted files, their backing files, and their format.

A disk image is untrusted input. It may be a link out of the task's directory; a qcow2 image may name any file of the
host as its backing file, and a guest may write such a header onto its raw disk. So links are resolved, the chain of
backing files is followed, and QEMU gets the format instead of probing it.

Other tasks may write in the allocation and replace a checked file by a link. So files there are opened without
following links, checked by their descriptors, and pinned for QEMU where the agent may mount.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
from collections.abc import Callable, Sequence

import msgspec
from yurt.sdk.containers.mount_permissions import private_to
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.opening import open_file

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


Hold = Callable[[int], str]
"""Mounts an open descriptor at a path that no task can change, and returns the path; raises OSError."""


class ImageSite(msgspec.Struct, frozen=True):
    """The permitted folders of images, with links resolved (the allocation's and the operator's), and the task.

    Without `hold` QEMU gets plain paths.
    """

    alloc_dir: str
    folders: tuple[str, ...]
    task: str
    hold: Hold | None = None


def find_image(
    image_path: str, *, task_dir: str, alloc_dir: str, image_paths: Sequence[str], hold: Hold | None = None
) -> Image:
    """The image of a task, relative to its directory; raises DriverError when it is not permitted."""
    if "\0" in image_path:
        raise DriverError("image_path contains a NUL character")
    folders = tuple(os.path.realpath(folder) for folder in image_paths)
    site = ImageSite(os.path.realpath(alloc_dir), folders, os.path.basename(task_dir), hold)
    found: list[Image] = []
    path, name = real_path(task_dir, image_path), image_path
    while True:
        image, backing = look_at(path, site, shown=name)
        found.append(image)
        if not backing:
            break
        if len(found) > CHAIN_MAX:
            raise DriverError(
                f"the image {path} is laid over more than {CHAIN_MAX} others; flatten it with `qemu-img convert`"
            )
        path, name = real_path(os.path.dirname(path), backing), backing
    return functools.reduce(lambda below, above: msgspec.structs.replace(above, backing=below), reversed(found))


def real_path(folder: str, name: str) -> str:
    """A path with links resolved; raises DriverError when another task changes them meanwhile."""
    try:
        return os.path.realpath(os.path.join(folder, name))
    except OSError as error:
        raise DriverError(f'image "{name}" changed while its links were followed: {error.strerror}') from None


def look_at(path: str, site: ImageSite, *, shown: str) -> tuple[Image, str]:
    """An image without its backing chain, and the name of its backing file."""
    is_shared = lies_in(path, site.alloc_dir)
    fd = open_image(path, site, shown=shown)
    try:
        head = os.pread(fd, HEADER_BYTES, 0)
        backing = backing_file(fd, head, path)
        image = Image(path=path, format=format_of(head, path))
        if site.hold is not None and is_shared:
            image = msgspec.structs.replace(image, path=site.hold(fd), is_pinned=True)
        return image, backing
    except OSError as error:
        raise RecoverableError(f'image "{shown}" cannot be read and held for QEMU: {error.strerror} ({path})') from None
    finally:
        os.close(fd)


def lies_in(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it."""
    return os.path.commonpath((path, folder)) == folder


def open_image(path: str, site: ImageSite, *, shown: str) -> int:
    """A descriptor of a permitted image, by a path without links; in the allocation it must be a regular file."""
    is_allowed = any(lies_in(path, folder) for folder in site.folders)
    is_shared = lies_in(path, site.alloc_dir)
    if not is_allowed and not is_shared:
        raise DriverError(
            f'image "{shown}" lies outside of the allocation ({path}); fetch it with an artifact, or add its folder to '
            'image_paths in plugin "qemu"'
        )
    inner = os.path.relpath(path, site.alloc_dir) if is_shared else ""
    owner = private_to(inner, own=site.task) if "/" in inner and not is_allowed else ""
    if owner:
        raise DriverError(f'image "{shown}" is {owner}; put it into a folder that the tasks share')
    try:
        fd = open_file(site.alloc_dir, inner) if is_shared else os.open(path, FLAGS)
    except OSError as error:
        raise cannot_be_opened(error, path, shown=shown) from None
    if not is_shared and not is_disk(os.fstat(fd).st_mode):
        os.close(fd)
        raise cannot_be_opened(OSError(errno.EINVAL, "it is not a regular file"), path, shown=shown)
    return fd


def is_disk(mode: int) -> bool:
    """Whether a file type is suitable for disks: an operator may permit a device."""
    return stat.S_ISREG(mode) or stat.S_ISBLK(mode)


def cannot_be_opened(error: OSError, path: str, *, shown: str) -> DriverError:
    """The error for an image that cannot be opened."""
    if error.errno == errno.EINVAL:
        return DriverError(f'image "{shown}" is not a file ({path}); give the path of a disk image')
    if error.errno == errno.ELOOP:
        return RecoverableError(f'image "{shown}" changed while it was read: its path contains a link now ({path})')
    return DriverError(f'image "{shown}" cannot be read: {error.strerror} ({path})')


def backing_file(fd: int, head: bytes, path: str) -> str:
    """The backing file of a qcow image; empty for none. Raises DriverError for an unsupported header."""
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
        name = os.pread(fd, size, offset).decode(errors="surrogateescape")
    except (OSError, OverflowError) as error:
        raise DriverError(f"the name of the backing file of the image {path} cannot be read: {error}") from None
    if PROTOCOL.match(name) or "\0" in name:
        raise DriverError(f'the image {path} is laid over "{name}", which is not a plain file; flatten it')
    return name


def format_of(head: bytes, path: str) -> str:
    """The format in a header; raw without one."""
    for magic, kind in REFUSED.items():
        if head.startswith(magic):
            raise DriverError(f"{path} is a {kind} image; convert it with `qemu-img convert -O qcow2`")
    if head.startswith(QCOW_MAGIC):
        return "qcow2" if int.from_bytes(head[4:8]) >= 2 else "qcow"
    if head[VDI_MAGIC_AT : VDI_MAGIC_AT + 4] == VDI_MAGIC:
        return "vdi"
    return next((kind for magic, kind in SELF_CONTAINED.items() if head.startswith(magic)), "raw")
