"""A command log on etcd, shared by several servers: the leader appends, all follow.

One append is in flight at a time; a larger number would have to be taken back when an earlier one fails.

Snapshots are files of each server; the folder also holds a lock, and the id of the cluster that it belongs to.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from yurt.runtime.background import Background
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Unavailable, YurtError
from yurt.storage.etcd import commit_record
from yurt.storage.etcd.client import Connect, EtcdClient, NoSpace
from yurt.storage.etcd.interruptible_waits import Interrupted
from yurt.storage.etcd.key_layout import LAYOUT, Format, KeyLayout, LogMark, is_at, put
from yurt.storage.etcd.leading import CLOSED, Candidate
from yurt.storage.etcd.reading import EntryReader
from yurt.storage.etcd.server_folder import ServerFolder
from yurt.storage.etcd.session import EtcdSession, SessionSettings, start_session
from yurt.storage.etcd.settings import EtcdSecurity
from yurt.storage.log import KEPT_ENTRIES, DatabaseSize, Entry, Leadership, LogState
from yurt.structs.commands import AnyCommand

log = logging.getLogger(__name__)

OPEN_PAUSE_FIRST_S, OPEN_PAUSE_MAX_S = 0.1, 2.0
WAITING_LOG_INTERVAL_S: Final = 10.0


class EtcdLog:
    """The log of one server. `endpoints` are `http(s)://host:port`, or `unix:///path`.

    `own_endpoint` is that of this server's own member, "" with an external etcd. `name` is the
    server's, and that of its etcd member. A leader must be silent `time_factor` times longer than usual before another
    server tries. `quota_bytes` is the quota of the own member; 0: unknown.
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
        time_factor: float = 1,
        quota_bytes: int = 0,
        connect: Connect | None = None,
    ) -> None:
        """Raises Invalid for an invalid endpoint or region; does not connect yet."""
        candidate = Candidate(name=name, own_endpoint=own_endpoint, time_factor=time_factor)
        self._settings = SessionSettings(
            endpoints=endpoints, candidate=candidate, security=security, quota_bytes=quota_bytes, connect=connect
        )
        self._folder = ServerFolder(folder)
        self._env = env
        self._keys = KeyLayout(region)
        self._background: Background | None = None
        self._session = self._new_session()

    async def open(self) -> LogState:
        """Lock the folder and wait for etcd; raises Conflict when the folder is in use or belongs to another cluster.

        Entries may begin above the snapshot: `entries` and `follow` then raise LogTrimmed, and a peer has the state.
        """
        self._folder.lock()
        try:
            self._session.reports.index = await self._env.in_thread(self._folder.newest_snapshot)
            recorded = await self._env.in_thread(self._folder.witness.open)
            state = await self._wait_for_etcd(recorded)
        except BaseException:
            await self.close()
            raise
        self._background = Background("command log")
        for task, loop in self._session.loops.items():
            self._background.start(task, loop)
        return state

    async def append(
        self, first_index: int, commands: Sequence[AnyCommand], encoded: Sequence[msgspec.Raw] = ()
    ) -> None:
        """Make the commands durable, all or none.

        Raises Conflict when `first_index` is not the next one, or this server does not lead, LogFull when etcd has no
        room: nothing was stored. Raises Unavailable when the outcome is unknown; the term is over then.
        """
        self._check_open()
        await self._session.appender.append(first_index, encoded or commands)

    async def entries(self, after: int) -> AsyncIterator[Entry]:
        """The entries with a command above `after`; raises LogTrimmed, Conflict or Unavailable."""
        self._check_open()
        try:
            async for entry in self._session.reader.read(self._session.reader.cursor(after)):
                yield entry
        except Interrupted:
            raise Conflict(CLOSED) from None

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        """The entries above `after`, then new ones, until the log is closed; raises LogTrimmed.

        A follower that requests the next entry has applied the ones before: a server that
        lags does not try to lead.
        """
        self._check_open()
        async for entry in self._session.reader.follow(after):
            yield entry

    async def campaign(self) -> AsyncIterator[Leadership]:
        """Leadership gained and lost, and the terms of other servers, until the log is closed."""
        self._check_open()
        async for level in self._session.leading.levels.follow():
            yield level

    async def resign(self, to: str = "") -> None:
        """Transfer leadership to another server, or to the named one; no effect without another server.

        Raises Invalid when no server has that name, Unavailable when etcd does not answer.
        """
        await self._session.handover.resign(to)

    @property
    def has_other_servers(self) -> bool:
        """Whether other servers may use the log as well."""
        return True

    async def confirm(self) -> None:
        """Return once it is confirmed that this server still leads; raises Unavailable otherwise."""
        await self._session.confirmation.confirm()

    async def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        """Store the state at `index` in this server's folder, then report it, now or when etcd answers again."""
        await self._env.in_thread(self._folder.save_snapshot, index, chunks)
        session = self._session
        session.reports.index = index
        session.reader.has_reached(index)
        try:
            mark = await session.reader.mark_at(index)
            if mark.digest:
                await self._env.in_thread(self._folder.write_history, mark)
            await session.reports.report()
        except YurtError as error:
            log.debug("snapshot report delayed: index=%d error=%s", index, error)

    async def load_snapshot(self, up_to: int | None = None) -> tuple[int, Iterable[bytes]] | None:
        """The newest snapshot of this server with a valid digest."""
        return await self._env.in_thread(self._folder.load_snapshot, up_to)

    async def trim(self, below: int, *, keep: int = KEPT_ENTRIES) -> None:
        """Delete commands more than `keep` below an index that the snapshots of a majority of servers cover.

        The leader does that for all; on other servers nothing happens.
        """
        self._check_open()
        await self._session.compaction.trim(below, keep=keep)

    async def scrub(self) -> str:
        """Verify this server's snapshots; etcd checks its own files."""
        found = await self._env.in_thread(self._folder.damaged_snapshots)
        return f"the snapshot {found[0]} is damaged" if found else ""

    async def wait_crowded(self) -> None:
        """Return when this server's etcd member nears its quota."""
        self._check_open()
        await self._session.file_size.is_crowded.wait()

    @property
    def database_size(self) -> DatabaseSize | None:
        """The database size of this server's etcd member; None while unknown."""
        own = self._session.quota_usage.own
        return own if own.size else None

    async def wait_sizes_due(self) -> None:
        """Return when it is time to query the other servers' sizes; never if the quota is unknown."""
        self._check_open()
        await self._session.file_size.wait_sizes_due()

    def record_size(self, server: str, size: DatabaseSize) -> None:
        """Record the database size of another server's member."""
        self._session.quota_usage.record(server, size)

    async def close(self) -> None:
        """Unlock the folder; may be called again."""
        self._session.interrupt()
        background, self._background = self._background, None
        if background is not None:
            await background.close()
        await self._session.client.close()
        self._folder.close()
        self._session = self._new_session()

    def _new_session(self) -> EtcdSession:
        return start_session(self._settings, self._keys, env=self._env, witness=self._folder.witness)

    def _check_open(self) -> None:
        if self._background is None:
            raise Conflict(CLOSED)

    async def _wait_for_etcd(self, recorded: LogMark) -> LogState:
        """The state of the log, once a majority of etcd answers; `recorded` is this server's last recorded position."""
        pause_s, logged_at = OPEN_PAUSE_FIRST_S, self._env.monotonic()
        while True:
            try:
                return await self._state(recorded)
            except Unavailable as error:
                if isinstance(error, NoSpace):
                    raise
                if self._env.monotonic() - logged_at >= WAITING_LOG_INTERVAL_S:
                    logged_at = self._env.monotonic()
                    log.warning("still waiting for etcd: %s", error)
                log.debug("waiting for etcd: %s", error)
            await self._env.sleep(pause_s)
            pause_s = min(pause_s * 2, OPEN_PAUSE_MAX_S)

    async def _state(self, recorded: LogMark) -> LogState:
        session, folder = self._session, self._folder
        await self._env.in_thread(folder.check_cluster, await _read_format(session.client, self._keys, self._env))
        await session.leading.look()
        first, last = await session.reader.first_index(), session.leading.seen.head.index
        if (snapshot := session.reports.index) > last:
            raise Conflict(
                f"the snapshot in {folder.path} is at index {snapshot}, the log in etcd ends at {last}: etcd "
                "has lost data; restore its data, or move all servers' data_dir away and restore a snapshot"
            )
        await _check_history(folder, session.reader, self._env)
        await commit_record.check(recorded, session.reader, last=last, folder=folder.path)
        with contextlib.suppress(NoSpace):
            await session.reports.report()
        return LogState(last_index=last, first_index=first, snapshot_index=snapshot)


async def _read_format(client: EtcdClient, keys: KeyLayout, env: Env) -> Format:
    """The format of the keys; the first server writes it."""
    found = await client.range(keys.format)
    if not found.kvs:
        made = msgspec.json.encode(Format(layout=LAYOUT, id=env.uuid()))
        await client.txn([is_at(keys.format, 0)], [put(keys.format, made), put(keys.head, b"0")])
        found = await client.range(keys.format)
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


async def _check_history(folder: ServerFolder, reader: EntryReader, env: Env) -> None:
    """Raises Conflict when the snapshot in the folder and the log in etcd belong to different histories."""
    history = await env.in_thread(folder.read_history)
    if history is None:
        return
    found = await reader.mark_at(history.index)
    if found.digest and found != history:
        raise Conflict(
            f"the snapshot in {folder.path} is of another history than the log in etcd, they differ at index "
            f"{history.index}: etcd was restored to an older state. Restore what it had, or move this data_dir away "
            "to join as a new server"
        )
