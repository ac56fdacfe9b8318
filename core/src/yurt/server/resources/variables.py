"""Variables: stored encrypted, decrypted for answers, and locked on request.

A refusal because of another version or another's lock is a `VariableConflict`, which carries the variable as it is.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import partial

from yurt.duties.variable_locks import VariableLocks
from yurt.sdk.errors import Conflict, Invalid, NotFound, YurtError
from yurt.sdk.value import Duration, replace, seconds
from yurt.sdk.value import duration_text as format_duration
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.root_keys import RootKeys
from yurt.server.keys.sealing import opened, sealed
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.log_writer import Committed, Stale, error_of
from yurt.server.log.replica import Replica
from yurt.server.log.state_waits import wait_for
from yurt.state import Changes, Snapshot, has_change_of
from yurt.structs.commands import (
    AnyCommand,
    DeleteVariable,
    LockVariable,
    PutVariable,
    Rejected,
    ReleaseVariableLock,
)
from yurt.structs.variable import EncryptedVariable, LockView, Variable, VariableLock, VariableMetadata

VariableKey = tuple[str, str]
"""(namespace, path)."""
PATH = re.compile(r"[a-zA-Z0-9-_~/]{1,128}")
OWN_PATHS = re.compile(r"nomad/(jobs(/.+)?|job-templates/.+)")
ITEMS_BYTES_MAX = 64 * 1024
TTL_MIN, TTL_MAX, TTL_DEFAULT = seconds(10), seconds(24 * 3600), seconds(15)
DELAY_DEFAULT = seconds(15)


class VariableConflict(Conflict):
    """The variable differs from the caller's expectation; `current` is its value at `index`, or None without one."""

    def __init__(self, message: str, current: Variable | VariableMetadata | None, *, index: int) -> None:
        super().__init__(message)
        self.current = current
        self.index = index


def check_path(path: str) -> str:
    """The path if valid; raises Invalid."""
    if not path:
        raise Invalid("missing variable path")
    if not PATH.fullmatch(path):
        raise Invalid(f'invalid path "{path[:140]}"; a path is up to 128 letters, digits and any of -_~/')
    if (path == "nomad" or path.startswith("nomad/")) and not OWN_PATHS.fullmatch(path):
        raise Invalid(
            f'only paths at "nomad/jobs" or below and below "nomad/job-templates" are valid paths under the top-level '
            f'"nomad" path, not "{path}"'
        )
    return path


def check_items(items: Mapping[str, str]) -> None:
    """Raises Invalid for invalid or too many items."""
    if not items:
        raise Invalid("variable missing required Items object")
    if any(not key for key in items):
        raise Invalid("an item of a variable has no name")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in items.items())
    if size > ITEMS_BYTES_MAX:
        raise Invalid(f"variables are limited to 64KiB in total size; these items take {size} bytes")


def metadata_of(variable: EncryptedVariable) -> VariableMetadata:
    """A variable without its items; a lock's id is shown to its holder only."""
    return VariableMetadata(
        namespace=variable.namespace,
        path=variable.path,
        create_index=variable.create_index,
        modify_index=variable.modify_index,
        create_time=variable.create_time,
        modify_time=variable.modify_time,
        lock=_lock_view(variable.lock, is_holder=False),
    )


def _lock_view(lock: VariableLock | None, *, is_holder: bool) -> LockView | None:
    if lock is None:
        return None
    return LockView(
        id=lock.id if is_holder else "", ttl=format_duration(lock.ttl), lock_delay=format_duration(lock.lock_delay)
    )


def checked_lock(ttl: Duration | None, delay: Duration | None) -> VariableLock:
    """A new lock, still without an id; raises Invalid."""
    lock = VariableLock(ttl=ttl or TTL_DEFAULT, lock_delay=DELAY_DEFAULT if delay is None else delay)
    if not TTL_MIN <= lock.ttl <= TTL_MAX:
        raise Invalid(f"a lock's TTL must be between 10s and 24h, not {format_duration(lock.ttl)}")
    if not 0 <= lock.lock_delay <= TTL_MAX:
        raise Invalid(f"a lock's delay must be between 0s and 24h, not {format_duration(lock.lock_delay)}")
    return lock


class Variables:
    """Operations on variables, and the leader's timers of their locks."""

    def __init__(
        self, replica: Replica, leader: CurrentLeader, *, region: str, root_keys: RootKeys, keyring: Keyring
    ) -> None:
        self._replica = replica
        self._region = region
        self._leader = leader
        self._root_keys = root_keys
        self._keyring = keyring
        self._locks = VariableLocks()
        self._changed = asyncio.Event()

    def open(self, variable: EncryptedVariable, *, is_holder: bool = False) -> Variable:
        """A decrypted variable; raises Unavailable when its root key is missing here."""
        return Variable(
            namespace=variable.namespace,
            path=variable.path,
            create_index=variable.create_index,
            modify_index=variable.modify_index,
            create_time=variable.create_time,
            modify_time=variable.modify_time,
            items=opened(self._keyring, variable),
            lock=_lock_view(variable.lock, is_holder=is_holder),
        )

    async def put(
        self, namespace: str, path: str, items: Mapping[str, str], *, check_index: int | None = None, lock_id: str = ""
    ) -> Variable:
        """Store items; raises Invalid, NotFound (namespace) or VariableConflict."""
        check_path(path)
        check_items(items)
        variable = await self._sealed(namespace, path, items)
        command = PutVariable(
            variable=variable,
            check_index=check_index,
            lock_id=lock_id,
            now=self._replica.env.now(),
            region=self._region,
        )
        key = (namespace, path)
        return self._written(await self._committed(key, command), key, lock_id=lock_id)

    async def delete(self, namespace: str, path: str, *, check_index: int | None = None, lock_id: str = "") -> int:
        """Delete a variable; returns the index. Raises Invalid or VariableConflict."""
        check_path(path)
        command = DeleteVariable(namespace=namespace, path=path, check_index=check_index, lock_id=lock_id)
        return (await self._committed((namespace, path), command)).index

    async def acquire(self, namespace: str, path: str, lock: VariableLock, items: Mapping[str, str]) -> Variable:
        """Lock a variable, created if missing; the answer has the lock's id."""
        check_path(path)
        if items:
            check_items(items)
        key, own = (namespace, path), lock if lock.id else replace(lock, id=self._replica.env.uuid())

        async def decision(state: Snapshot) -> LockVariable:
            stored = state.variables.get(key)
            holds = stored is not None and stored.lock is not None and stored.lock.id == lock.id and bool(lock.id)
            if not holds and self._locks.is_delayed(key, self._replica.env.now()):
                raise self._conflict(state, key, "variable is locked, or its lock has ended a moment ago")
            variable = replace(await self._sealed(namespace, path, items), lock=own)
            now = self._replica.env.now()
            return LockVariable(variable=variable, keeps_items=not items, now=now, region=self._region)

        committed = await self._replica.decide(decision, propose=partial(self._committed, key))
        return self._written(committed, key, lock_id=own.id)

    async def renew(self, namespace: str, path: str, lock_id: str) -> VariableMetadata:
        """Renew a lock for its full duration; raises NotFound or VariableConflict."""
        key = (namespace, check_path(path))
        await self._leader.confirm()  # the leader's clock decides, and only one server has it
        state = self._replica.state
        stored = state.variables.get(key)
        if stored is None:
            raise NotFound("variable not found")
        if not lock_id or not self._locks.renew(key, lock_id, self._replica.env.now()):
            raise self._conflict(state, key, "variable does not hold this lock")
        return replace(metadata_of(stored), lock=_lock_view(stored.lock, is_holder=True))

    async def release(self, namespace: str, path: str, lock_id: str) -> VariableMetadata:
        """Release a lock; raises NotFound or VariableConflict. As in Nomad the result has no items."""
        check_path(path)
        command = ReleaseVariableLock(namespace=namespace, path=path, lock_id=lock_id, now=self._replica.env.now())
        key = (namespace, path)
        return metadata_of((await self._committed(key, command)).state.variables[key])

    async def _sealed(self, namespace: str, path: str, items: Mapping[str, str]) -> EncryptedVariable:
        key = await self._root_keys.active()
        return sealed(self._keyring, key.key_id, namespace=namespace, path=path, items=items)

    async def _committed(self, key: VariableKey, command: AnyCommand) -> Committed:
        """The result of a command; a conflict contains the variable at the command's position."""
        committed = await self._replica.writer.submit(command)
        if not isinstance(committed.result, Rejected):
            return committed
        error = error_of(committed.result)
        if isinstance(error, Conflict) and not isinstance(error, Stale):
            error = self._conflict(committed.state, key, str(error))
        raise error

    def _written(self, committed: Committed, key: VariableKey, *, lock_id: str) -> Variable:
        variable = committed.state.variables[key]
        return self.open(variable, is_holder=variable.lock is not None and variable.lock.id == lock_id)

    def _conflict(self, state: Snapshot, key: VariableKey, message: str) -> VariableConflict:
        stored = state.variables.get(key)
        return VariableConflict(message, self.open(stored) if stored is not None else None, index=state.index)

    # The leader's clock.

    def restore(self, state: Snapshot) -> None:
        """Give every lock its full duration, since the last leader's timers are unknown."""
        self._locks.restore(state.variables.where("locked", "locked"), self._replica.env.now())

    def observe(self, changes: Changes) -> None:
        """Follow added and removed locks."""
        if not has_change_of(changes, "variables"):
            return
        for change in changes:
            if change.table == "variables":
                variable: EncryptedVariable = change.after or change.before
                self._locks.follow(variable.key, change.after, self._replica.env.now())
                self._changed.set()

    async def run(self) -> None:
        """Release expired locks, until cancelled."""
        env = self._replica.env
        while True:
            self._changed.clear()
            for (namespace, path), lock_id in self._locks.take_expired(env.now()):
                command = ReleaseVariableLock(namespace=namespace, path=path, lock_id=lock_id, now=env.now())
                try:
                    await self._replica.propose(command)
                except (NotFound, Conflict):
                    continue
                except YurtError:
                    self._locks.follow(
                        (namespace, path), self._replica.state.variables.get((namespace, path)), env.now()
                    )
                    raise
            ends_at = self._locks.next_end()
            await wait_for(env, self._changed, None if ends_at is None else (ends_at - env.now()) / 1e9)
