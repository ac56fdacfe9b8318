"""A command log on etcd, shared by several servers: one of them appends, all of them follow.

One append is in flight at a time; a larger number would have to be taken back when an earlier one fails.

Snapshots are files of each server; the folder also holds a lock, and the id of the cluster that it belongs to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from yurt.runtime.background import Background
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Invalid, Unavailable, YurtError
from yurt.storage import snapshot_files
from yurt.storage.checked import read_checked, write_checked
from yurt.storage.data_dir import DataDir
from yurt.storage.etcd import witness
from yurt.storage.etcd.appending import append
from yurt.storage.etcd.client import EtcdClient, NoSpace
from yurt.storage.etcd.keys import LAYOUT, Format, Keys, Mark, is_at, put
from yurt.storage.etcd.leading import NO_LEADER, Leading
from yurt.storage.etcd.members import list_members, member_status, move_leader
from yurt.storage.etcd.reading import LogReader
from yurt.storage.etcd.room import Rooms
from yurt.storage.etcd.settings import EtcdSecurity
from yurt.storage.etcd.space import Space
from yurt.storage.etcd.waits import Interrupt, Interrupted
from yurt.storage.etcd.witness import Witness
from yurt.storage.log import KEPT_ENTRIES, Entry, Leadership, LogRoom, LogState
from yurt.structs.commands import AnyCommand

log = logging.getLogger(__name__)

OPEN_PAUSE_FIRST_S, OPEN_PAUSE_MAX_S = 0.1, 2.0
WAITING_TOLD_S: Final = 10.0
MOVE_TRIES_MAX: Final = 2
CLOSED: Final = "the command log is closed"
CLUSTER_FILE, HISTORY_FILE = "cluster", "history"
"""In the folder: the id of the cluster, and where the log stood when the newest snapshot was made."""


class EtcdLog:
    """The log of one server. `endpoints` are `http(s)://host:port`, or `unix:///path`.

    `own_endpoint` is that of the member beside this server, empty with an etcd that stands by itself. `name` is the
    server's, and that of its etcd member. A leader must be silent `patience` times longer than usual before another
    server tries. `quota_bytes` is that of the member beside; 0: unknown.
    """

    def __init__(
        self,
        *,
        endpoints: tuple[str, ...],
        folder: Path,
        name: str,
        region: str,
        env: Env,
        security: EtcdSecurity | None = None,
        own_endpoint: str = "",
        patience: float = 1,
        quota_bytes: int = 0,
    ) -> None:
        """Raises Invalid for endpoints or a region that cannot be used; nothing is connected yet."""
        self._folder = folder
        self._name = name
        self._env = env
        self._own_endpoint = own_endpoint
        self._security = security
        self._patience = patience
        self._quota_bytes = quota_bytes
        self._endpoints = endpoints
        self._keys = Keys(region)
        self._witness = Witness(folder)
        self._known = Mark()
        self._appending = asyncio.Lock()
        self._lock: DataDir | None = None
        self._background: Background | None = None
        self._start_over()

    async def open(self) -> LogState:
        """Take the folder and wait for etcd; raises Conflict when the folder is in use or belongs to another cluster.

        Entries may begin above the snapshot: `entries` and `follow` then raise LogTrimmed, and a peer has the state.
        """
        assert self._lock is None, "the log is open already"
        self._lock = DataDir(self._folder)
        try:
            self._space.snapshot_index = await asyncio.to_thread(snapshot_files.newest_index, self._snapshots)
            self._known = await asyncio.to_thread(self._witness.open)
            state = await self._wait_for_etcd()
        except BaseException:
            await self.close()
            raise
        self._background = Background("command log")
        for work in (
            self._leading.watch, self._leading.run, self._leading.answer_confirms, self._space.compact_at_times,
            self._space.compact_as_it_grows, self._space.make_room_when_full, self._space.report_snapshots,
            self._space.watch_room,
        ):  # fmt: skip
            self._background.start(work.__name__, work)
        return state

    async def append(
        self, first_index: int, commands: Sequence[AnyCommand], encoded: Sequence[msgspec.Raw] = ()
    ) -> None:
        """Make the commands durable, all or none.

        Raises Conflict when `first_index` is not the next one, or this server does not lead, LogFull when etcd has no
        room: nothing was stored. Raises Unavailable when the outcome is unknown; the term is over then.
        """
        async with self._appending:
            if self._background is None:
                raise Conflict(CLOSED)
            term = self._leading.term
            if term is None:
                raise Conflict(f"{NO_LEADER}, nothing was stored")
            if first_index != term.head.index + 1:
                raise Conflict(f"the next index of the command log is {term.head.index + 1}, not {first_index}")
            if commands:
                stored = encoded or commands
                await append(term, first_index, stored, client=self._client, keys=self._keys, leading=self._leading)
                self._reader.has_applied(term.head)

    async def entries(self, after: int) -> AsyncIterator[Entry]:
        """The entries that hold a command above `after`; raises LogTrimmed, Conflict or Unavailable."""
        self._check_open()
        try:
            async for entry in self._reader.read(self._reader.cursor(after)):
                yield entry
        except Interrupted:
            raise Conflict(CLOSED) from None

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        """The entries above `after`, then those that others append, until the log is closed; raises LogTrimmed.

        Whoever follows says by coming back for the next entry that it has the state of the ones before: a server that
        lags does not try to lead.
        """
        self._check_open()
        async for entry in self._reader.follow(after):
            yield entry

    async def campaign(self) -> AsyncIterator[Leadership]:
        """Leadership gained and lost, and other servers' terms, until the log is closed."""
        self._check_open()
        async for level in self._leading.levels():
            yield level

    async def resign(self, to: str = "") -> None:
        """Give leadership to another server, or to the one named; nothing happens where there is no other.

        Raises Invalid when no server has that name, Unavailable when etcd does not answer.
        """
        term = self._leading.term
        if term is None:
            return
        others = [server for server in await self._space.servers() if server not in ("", self._name)]
        if to and to not in (*others, self._name):
            raise Invalid(f'there is no server "{to}" to lead; there are: {", ".join(others) or "no others"}')
        if not others or to == self._name:
            return
        async with self._appending:
            is_given = await self._leading.vacate(term, to)
        if is_given and self._own_endpoint:
            await self._move_etcd([to] if to else others)

    async def confirm(self) -> None:
        """Return when this server is known to lead still; raises Unavailable otherwise."""
        await self._leading.confirm()

    async def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        """Store the state at `index` in this server's folder, then let the others know, now or when etcd answers."""
        await asyncio.to_thread(snapshot_files.save, self._snapshots, index, chunks)
        self._space.snapshot_index = index
        self._reader.has_reached(index)
        try:
            await self._remember_history(index)
            await self._space.report()
        except YurtError as error:
            log.debug("the snapshot at index %d is told to the others later: %s", index, error)

    async def load_snapshot(self, up_to: int | None = None) -> tuple[int, Iterable[bytes]] | None:
        """The newest snapshot of this server whose digest fits."""
        return await asyncio.to_thread(snapshot_files.load, self._snapshots, up_to)

    async def trim(self, below: int, *, keep: int = KEPT_ENTRIES) -> None:
        """Forget commands that lie more than `keep` below, and below what a majority of servers has in snapshots.

        The leader does that for all; on other servers nothing happens.
        """
        self._check_open()
        await self._space.trim(below, keep=keep)

    async def scrub(self) -> str:
        """Read this server's snapshots again; etcd checks its own files."""
        found = await asyncio.to_thread(snapshot_files.damaged, self._snapshots)
        return f"the snapshot {found[0]} is damaged" if found else ""

    async def wait_crowded(self) -> None:
        """Return when the member beside nears its quota."""
        self._check_open()
        await self._space.is_crowded.wait()

    @property
    def room(self) -> LogRoom | None:
        """How large the file of the member beside is; None while it is not known."""
        return self._rooms.own if self._rooms.own.size else None

    async def wait_rooms_wanted(self) -> None:
        """Return when the others are to be asked for theirs; never where the quota is not known."""
        self._check_open()
        await self._space.wait_rooms_wanted()

    def hear_room(self, server: str, room: LogRoom) -> None:
        """What another server said of the member beside it."""
        self._rooms.hear(server, room)

    async def close(self) -> None:
        """Give the folder up; calling it again does nothing."""
        self._closing.raise_()
        self._leading.close()
        background, self._background = self._background, None
        if background is not None:
            await background.close()
        await self._client.close()
        self._witness.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self._start_over()

    @property
    def _snapshots(self) -> Path:
        return self._folder / "snapshots"

    def _start_over(self) -> None:
        """What lives from `open` to `close`."""
        self._client = EtcdClient(self._endpoints, security=self._security)
        self._closing = Interrupt()
        self._reader = LogReader(self._client, self._keys, env=self._env, closing=self._closing)
        self._reader.on_applied = self._witness.record
        self._leading = Leading(
            self._client,
            self._keys,
            name=self._name,
            own_endpoint=self._own_endpoint,
            env=self._env,
            position=lambda: self._reader.position,
        )
        self._leading.be_patient(self._patience)
        self._rooms = Rooms(self._quota_bytes if self._own_endpoint else 0, name=self._name)
        self._space = Space(self._client, self._keys, reader=self._reader, leading=self._leading, rooms=self._rooms)
        self._space.hand_over = self.resign

    def _check_open(self) -> None:
        if self._background is None:
            raise Conflict(CLOSED)

    def _check_folder(self, found: Format) -> None:
        """Blocks."""
        if (self._folder / "log.db").exists():
            raise Conflict(
                f"{self._folder} holds the log of a single server, which the cluster would not have; save a snapshot "
                "with that server (operator snapshot save), start with an empty data_dir, and restore it"
            )
        path = self._folder / CLUSTER_FILE
        try:
            known = read_checked(path).decode("utf-8", "replace").strip() if path.exists() else ""
        except (OSError, ValueError) as error:
            raise Conflict(
                f"{path} is damaged: {error}; it says which cluster this folder belongs to. When that is the one that "
                f"etcd holds ({found.id}), remove the file"
            ) from error
        if not known and path.exists():
            raise Conflict(f"{path} is empty; when this folder belongs to the cluster {found.id}, remove the file")
        if not known:
            write_checked(path, found.id.encode())
        elif known != found.id:
            raise Conflict(
                f"{self._folder} belongs to another cluster ({known[:40]}) than the one in etcd ({found.id}); "
                "choose another data_dir, or move this one away to join the cluster as a new server"
            )

    async def _wait_for_etcd(self) -> LogState:
        """What etcd holds, once a majority of it answers."""
        pause_s, told_at = OPEN_PAUSE_FIRST_S, self._env.monotonic()
        while True:
            try:
                return await self._state()
            except Unavailable as error:
                if isinstance(error, NoSpace):
                    raise
                if self._env.monotonic() - told_at >= WAITING_TOLD_S:
                    told_at = self._env.monotonic()
                    log.warning("still waiting for etcd: %s", error)
                log.debug("waiting for etcd: %s", error)
            await self._env.sleep(pause_s)
            pause_s = min(pause_s * 2, OPEN_PAUSE_MAX_S)

    async def _format(self) -> Format:
        """The layout of the keys, which the first server makes."""
        found = await self._client.range(self._keys.format)
        if not found.kvs:
            made = msgspec.json.encode(Format(layout=LAYOUT, id=self._env.uuid()))
            await self._client.txn(
                [is_at(self._keys.format, 0)], [put(self._keys.format, made), put(self._keys.head, b"0")]
            )
            found = await self._client.range(self._keys.format)
        text = found.kvs[0].value
        try:
            form = msgspec.json.decode(text, type=Format)
        except msgspec.DecodeError:
            form = Format(layout=text.decode("utf-8", "replace")[:40], id="")
        if form.layout != LAYOUT:
            raise Conflict(
                f'etcd holds a command log of the layout "{form.layout}", this version reads "{LAYOUT}"; '
                "run the version that wrote it"
            )
        return form

    async def _state(self) -> LogState:
        await asyncio.to_thread(self._check_folder, await self._format())
        await self._leading.look()
        first, last = await self._reader.first_index(), self._leading.seen.head.index
        if (snapshot := self._space.snapshot_index) > last:
            raise Conflict(
                f"the snapshot in {self._folder} is at index {snapshot}, the log in etcd ends at {last}: etcd "
                "has lost data; restore its data, or move all servers' data_dir away and restore a snapshot"
            )
        await self._check_history()
        await witness.check(self._known, self._reader, last=last, folder=self._folder)
        with contextlib.suppress(NoSpace):
            await self._space.report()
        return LogState(last_index=last, first_index=first, snapshot_index=snapshot)

    async def _remember_history(self, index: int) -> None:
        """Keep the digest of the log up to a snapshot, by which this server knows the log again at its next start."""
        mark = await self._reader.mark_at(index)
        if mark.digest:
            await asyncio.to_thread(write_checked, self._folder / HISTORY_FILE, msgspec.json.encode(mark))

    async def _check_history(self) -> None:
        """Raises Conflict when the snapshot here is of another history than the log in etcd."""
        path = self._folder / HISTORY_FILE
        try:
            known = msgspec.json.decode(await asyncio.to_thread(read_checked, path), type=Mark)
        except FileNotFoundError:
            return
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise Conflict(f"{path} is damaged: {error}; move it away to go on without what it checks") from error
        found = await self._reader.mark_at(known.index)
        if found.digest and found != known:
            raise Conflict(
                f"the snapshot in {self._folder} is of another history than the log in etcd, they differ at index "
                f"{known.index}: etcd was restored to an older state. Restore what it had, or move this data_dir away "
                "to join as a new server"
            )

    async def _move_etcd(self, names: Sequence[str]) -> None:
        """Let the etcd member beside one of the servers lead, so that this server's is not preferred."""
        try:
            if not (await member_status(self._client, self._own_endpoint)).is_leader:
                return
            peers = {peer.name: peer.id for peer in await list_members(self._client) if peer.name in names}
        except YurtError as error:
            log.debug("etcd's own leadership stays: %s", error)
            return
        for name, peer_id in list(peers.items())[:MOVE_TRIES_MAX]:
            try:
                await move_leader(self._client, peer_id)
            except YurtError as error:
                log.debug("etcd's own leadership does not go to %s: %s", name, error)
            else:
                return
