"""Pins mount sources inside the allocation from their check until the engine has mounted them.

An engine takes the sources of mounts by path, and follows links when it starts the container. The tasks of the
allocation may write there: between the driver's check of a path and the engine's use, a task can replace a folder by a
link to /etc. So the engine does not get such a path. The checked source is opened without following links and mounted
by its descriptor at a pinned path (`yurt.sdk.pinned_paths`), which the engine gets. Once the container has its own
mounts, the pins are released.

This requires root, and an engine running as root that sees our mounts: on the same machine, in the same mount namespace
or one to which our mounts propagate. Any other engine gets the path itself, and its mount is compared with the checked
source: before the container runs if the engine can create one without starting it, otherwise right after. With an
engine on another machine, or one whose processes are not visible here, nothing can be compared.

Pinned sources are compared too: an engine that does not see our mounts would show the task an empty folder.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import struct
import sys
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.opening import HOLD_FLAGS, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, has_openat2, hold, openat2
from yurt.sdk.pinned_paths import PinnedPaths
from yurt.sdk.search_permission import grant_search

PEER_S = 2.0
PEER = struct.Struct("3i")
LABEL = "yurt.held"
"""The pins of a container, for an engine that may restart it."""


class Hold(Protocol):
    """The path by which the engine finds a mount source: a pinned path for sources in the allocation.

    `makes`: missing folders are made, as the engine would. `is_seen`: the task sees the source itself at `target`, and
    no layer over it.
    """

    def __call__(self, source: str, target: str, *, makes: bool = False, is_seen: bool = True) -> str:
        """Plan to pin a source; opens nothing yet."""
        ...


def by_name(source: str, target: str, *, makes: bool = False, is_seen: bool = True) -> str:
    """The path itself, without pinning."""
    return source


class MountSource(NamedTuple):
    """A planned mount: the path for the engine, the path below the allocation's directory, the path in the task."""

    name: str
    path: str
    target: str
    makes: bool = False
    is_seen: bool = True


class EngineProcess(NamedTuple):
    """The process that listens on an engine's socket; pid 0 where it cannot be seen from here."""

    pid: int
    uid: int


class EngineView(NamedTuple):
    """Facts about an engine: whether it sees our mounts, and whether its containers' mounts can be inspected.

    `has_answered`: a local engine that does not take a connection now may be any. `uid` is that of a local engine.
    """

    is_reached: bool = False
    is_visible: bool = False
    has_answered: bool = True
    uid: int = 0


FAR = EngineProcess(0, -1)


class Holder:
    """Pins the mount sources of one engine's containers; `name` separates its folder from other engines'."""

    def __init__(self, name: str, socket_path: str, background: DriverTasks) -> None:
        self.places = PinnedPaths(name)
        self._socket_path = socket_path
        self._background = background
        self._reached: dict[int, bool] = {}
        self._opening = asyncio.Lock()
        self._is_open = False

    async def open(self) -> None:
        """Once before first use: remove the mounts of an agent that was killed."""
        async with self._opening:
            if not self._is_open:
                await asyncio.to_thread(self.places.clear)
                self._is_open = True

    async def holds(self, alloc_dir: str) -> Holds:
        """The mount sources of one start."""
        await self.open()
        view = await asyncio.to_thread(self._look)
        return Holds(self, alloc_dir, group=self.places.new_group() if view.is_reached else "", view=view)

    async def again(self, text: str) -> Holds:
        """The mount sources of a container that its engine restarts; `text` is its label."""
        await self.open()
        stored = json.loads(text) if text else {"alloc_dir": "", "group": "", "sources": []}
        view = await asyncio.to_thread(self._look)
        made = Holds(self, str(stored["alloc_dir"]), group=str(stored["group"]), view=view)
        made.sources = [MountSource(*each) for each in stored["sources"]]
        self.places.keep(made.group)
        return made

    def _look(self) -> EngineView:
        """Determine the current facts about the engine. Blocking."""
        peer = self._peer()
        if peer is None:
            return EngineView(has_answered=False)
        is_reached = peer.uid == 0 and os.geteuid() == 0 and self._reaches(peer.pid)
        return EngineView(is_reached=is_reached, is_visible=peer.pid > 0, uid=max(peer.uid, 0))

    def _peer(self) -> EngineProcess | None:
        """The process behind the engine's socket; None when the socket refuses connections. Blocking."""
        if sys.platform != "linux" or not self._socket_path:
            return FAR
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
            there.settimeout(PEER_S)
            try:
                there.connect(self._socket_path)
                pid, uid, _ = PEER.unpack(there.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
            except OSError:
                return None
        return EngineProcess(pid, uid)

    def _reaches(self, pid: int) -> bool:
        """Whether the agent can mount and a process sees the mount; tested once per mount namespace. Blocking."""
        try:
            namespace = os.stat(f"/proc/{pid}/ns/mnt").st_ino
        except OSError:
            return False
        if namespace not in self._reached:
            self._reached[namespace] = self.places.are_seen(f"/proc/{pid}/mountinfo")
        return self._reached[namespace]

    def drop_in_background(self, group: str) -> None:
        """Release in the background."""
        self._background.start("release of mounts", lambda: asyncio.to_thread(self.places.drop, group))

    async def close(self) -> None:
        """Release everything."""
        await asyncio.to_thread(self.places.close)


class Holds:
    """The mount sources of one container: `plan` before it is created, `take` at creation, `release` once it runs.

    States: planned -take-> held -release-> (nothing). With a `group` the engine gets places of ours instead of names.
    """

    def __init__(self, holder: Holder, alloc_dir: str, *, group: str, view: EngineView) -> None:
        self.group = group
        self._holder = holder
        self._alloc_dir = alloc_dir
        self._roots = (alloc_dir.rstrip("/"), os.path.realpath(alloc_dir)) if alloc_dir else ()
        self._view = view
        self._identities: dict[str, tuple[int, int]] = {}
        self.sources: list[MountSource] = []

    @property
    def wants_look_before(self) -> bool:
        """Whether the container's mounts must be checked before it runs: the engine gets paths, which may change."""
        return bool(self.sources) and self._view.is_visible and not self.group

    def plan(self, source: str, target: str, *, makes: bool = False, is_seen: bool = True) -> str:
        """The path for the engine; a source outside of the allocation, which the operator allows, keeps its own.

        Opens nothing yet, so that building the container's description stays pure.
        """
        root = next((each for each in self._roots if source == each or source.startswith(f"{each}/")), None)
        if root is None:
            return source
        number = len(self.sources)
        name = f"{self._holder.places.folder}/{self.group}/{number}" if self.group else source
        self.sources.append(MountSource(name, source[len(root) :].lstrip("/"), target, makes, is_seen))
        return name

    def text(self) -> str:
        """The mount sources as text for a container's label."""
        return json.dumps({"alloc_dir": self._alloc_dir, "group": self.group, "sources": self.sources})

    async def take(self) -> None:
        """Open every source, refusing links, and mount it at a pinned path; raises DriverError."""
        if not self._view.has_answered:
            raise RecoverableError(
                "the engine refuses connections, so it is unknown whether it sees the mounts of this machine"
            )
        await asyncio.to_thread(self._take)

    def _take(self) -> None:
        if self._alloc_dir and not self.group and self._view.uid not in (0, os.geteuid()):
            grant_search(self._alloc_dir, self._view.uid)
        for source in self.sources:
            try:
                self._take_one(source)
            except OSError as error:
                raise refusal(source, error) from None

    def _take_one(self, source: MountSource) -> None:
        descriptor = hold(self._alloc_dir, source.path, makes=source.makes)
        found = os.fstat(descriptor)
        self._identities[source.target] = (found.st_dev, found.st_ino)
        if self.group:
            self._holder.places.mount(descriptor, self.group, int(source.name.rpartition("/")[2]))
        else:
            os.close(descriptor)

    def release(self) -> None:
        """Release the pins: the container has its own mounts, or does not exist."""
        if self.group:
            self._holder.drop_in_background(self.group)

    async def check(self, inspected: Mapping[str, object]) -> None:
        """Compare the engine's mounts with the pinned sources; raises DriverError. An ended container passes."""
        state = inspected.get("State")
        pid = int(state.get("Pid") or 0) if isinstance(state, Mapping) else 0
        if pid > 0 and self._view.is_visible:
            await asyncio.to_thread(self._check, pid)

    def _check(self, pid: int) -> None:
        try:
            root = os.open(f"/proc/{pid}/root", HOLD_FLAGS | os.O_DIRECTORY)
        except OSError:
            return
        try:
            for source in self.sources:
                if source.is_seen and self._is_other(root, source) and has_root(pid):
                    raise self._mismatch(source)
        finally:
            os.close(root)

    def _is_other(self, root: int, source: MountSource) -> bool:
        """Whether a container has mounted another source than the pinned one; false where the kernel cannot tell."""
        if not has_openat2():
            return False
        path = source.target.strip("/") or "."
        found = openat2(root, path, HOLD_FLAGS, resolve=RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
        if found < 0:
            return found in (-errno.ENOENT, -errno.ENOTDIR) and not self.group
        seen = os.fstat(found)
        os.close(found)
        return (seen.st_dev, seen.st_ino) != self._identities[source.target]

    def _mismatch(self, source: MountSource) -> DriverError:
        if self.group:
            return DriverError(
                f"the container shows another folder at {source.target} than the one that was mounted for it: its"
                " engine does not see the mounts of this agent; start both in the same mount namespace"
                " (systemd: no PrivateMounts=, MountFlags= or ProtectSystem= that parts them)"
            )
        return RecoverableError(
            f'the mount at {source.target} is not "{source.path}" of the allocation, which was checked: somebody put'
            " something else in its place while the container started, and the container was removed"
        )


def has_root(pid: int) -> bool:
    """Whether a process still has its root; an exiting process loses its mounts and shows what lies below them."""
    try:
        os.close(os.open(f"/proc/{pid}/root", HOLD_FLAGS | os.O_DIRECTORY))
    except OSError:
        return False
    return True


def refusal(source: MountSource, error: OSError) -> DriverError:
    """The error for a source that cannot be pinned."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return RecoverableError(
            f'the mount source "{source.path}" of the allocation changed while it was looked at: there is a link on its'
            " way now"
        )
    if error.errno == errno.ENOENT:
        return DriverError(
            f'the mount source "{source.path}" is not in the allocation; make it with a template, an artifact or an'
            " earlier task"
        )
    return RecoverableError(f'the mount source "{source.path}" of the allocation cannot be mounted: {error.strerror}')
