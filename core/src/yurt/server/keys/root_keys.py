"""The life cycle of root keys: creation, publication ahead of use, activation, rotation, removal.

The leader makes the first key when it is needed. A rotation makes a new one active; a full rotation also encrypts
every variable again, in pieces, until the old key is of no use. A key that is published ahead becomes active at its
time. Signatures of inactive keys stay valid until the key is removed.

Every server holds every key: a new one is given to a majority before anything is sealed with it, so it outlives its
maker; servers that were away fetch what they lack.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from yurt.sdk.errors import Conflict, Invalid, Unavailable, YurtError
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.server.config import ServerConfig
from yurt.server.failures import no_leader
from yurt.server.keys.first_key import FirstKey
from yurt.server.keys.keyring import Keyring, is_key_id
from yurt.server.keys.sealing import sealed_again
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.log_writer import Stale
from yurt.server.log.replica import Replica
from yurt.server.log.state_waits import wait_for
from yurt.server.peers import Peers, RootKey
from yurt.state import Changes, has_change_of
from yurt.structs.commands import DeleteRootKeys, Expectation, PutRootKey, RekeyACLAuthMethods, RekeyVariables
from yurt.structs.variable import KEY_ACTIVE, KEY_INACTIVE, KEY_PREPUBLISHED, KEY_REKEYING, KeyState, RootKeyMeta

log = logging.getLogger(__name__)

REKEY_BATCH = 50
ROTATION_MIN_S = 60.0
GIVE_LIMIT_S = 5.0
"""The time limit, in seconds, for another server to accept or return a key."""
FETCH_RETRY_S = 5.0


class RootKeys:
    """Operations on the cluster's root keys."""

    def __init__(
        self, replica: Replica, leader: CurrentLeader, config: ServerConfig, *, keyring: Keyring, peers: Peers
    ) -> None:
        self._replica = replica
        self._leader = leader
        self._config = config
        self.keyring = keyring
        self._peers = peers
        self._making = asyncio.Lock()
        self.first = FirstKey(replica, self.active)
        self._changed = asyncio.Event()
        self._must_fetch = asyncio.Event()
        self._deleted_ids: set[str] = set()

    def listed(self) -> tuple[RootKeyMeta, ...]:
        """All keys, oldest first."""
        return tuple(sorted(self._replica.state.root_keys.values(), key=lambda key: (key.create_index, key.key_id)))

    async def active(self) -> RootKeyMeta:
        """The key for encryption and signing; created on first use. Raises Unavailable without a leader."""
        key = self.usable()
        if key is not None:
            return key
        async with self._making:
            await self._fetch_missing()
            key = self.usable()
            if key is None:
                need_unlocked(self.listed(), self.keyring)
                key = await self._make(KEY_ACTIVE)
            return key

    def usable(self) -> RootKeyMeta | None:
        """The active key, if this server has it; else None."""
        active = next((key for key in self.listed() if key.state == KEY_ACTIVE), None)
        return active if active is not None and active.key_id in self.keyring else None

    async def _make(self, state: KeyState, *, is_full: bool = False, publish_time: int = 0) -> RootKeyMeta:
        env = self._replica.env
        if not self._replica.writer.is_open:
            raise no_leader()
        key_id = env.uuid()
        await self._give(await asyncio.to_thread(self.keyring.create, key_id))
        meta = RootKeyMeta(key_id=key_id, create_time=env.now(), state=state, publish_time=UnixNano(publish_time))
        committed = await self._replica.propose(PutRootKey(key=meta, is_full=is_full))
        return committed.state.root_keys[key_id]

    async def _give(self, key: RootKey) -> None:
        """Distribute a key to a majority of servers before its use; raises Unavailable when fewer have it."""
        peers, names = self._peers, self._peers.names
        results = await asyncio.gather(*(self._give_to(name, key) for name in names))
        count, needed = 1 + sum(results), peers.voters // 2 + 1
        if count < needed:
            holders = [name for name, has_stored in zip(names, results, strict=True) if has_stored]
            await asyncio.gather(*(self._take_back(name, key.key_id) for name in holders))
            await asyncio.to_thread(self.keyring.remove, key.key_id)
            raise Unavailable(f"a new root key reached {count} of {peers.voters} servers, {needed} must hold it")

    async def _give_to(self, name: str, key: RootKey) -> bool:
        try:
            async with asyncio.timeout(GIVE_LIMIT_S):
                await self._peers.peer(name).take_root_key(key)
        except (YurtError, TimeoutError) as error:
            log.warning("root key not accepted: server=%s error=%s", name, str(error) or "no answer in time")
            return False
        return True

    async def _take_back(self, name: str, key_id: str) -> None:
        """Delete an unused key from a server; an unreachable server keeps it, unused."""
        try:
            async with asyncio.timeout(GIVE_LIMIT_S):
                await self._peers.peer(name).drop_root_key(key_id)
        except (YurtError, TimeoutError) as error:
            log.warning("server %s keeps root key %s, which is not used: %s", name, key_id, str(error) or "no answer")

    async def rotate(self, *, is_full: bool, publish_time: int = 0) -> RootKeyMeta:
        """Create a key: active at once, or from `publish_time` (unix ns) on. Raises Invalid."""
        if publish_time and is_full:
            raise Invalid("a full rotation cannot be published ahead; leave out one of the two")
        if publish_time and publish_time <= self._replica.env.now():
            raise Invalid("publish_time lies in the past")
        async with self._making:
            made = await self._make(
                KEY_PREPUBLISHED if publish_time else KEY_ACTIVE, is_full=is_full, publish_time=publish_time
            )
        log.info("root key rotated: key=%s state=%s full=%s", made.key_id, made.state, is_full)
        return made

    async def remove(self, key_id: str, *, is_forced: bool) -> int:
        """Remove a key; raises NotFound, Conflict when it is in use, Invalid when it is active."""
        applied = await self._replica.propose(DeleteRootKeys(key_ids=(key_id,), is_forced=is_forced))
        await asyncio.to_thread(self.keyring.remove, key_id)
        return applied.index

    async def jwks(self) -> dict[str, Any]:
        """The public keys of all root keys; never creates the first key."""
        ids = [key.key_id for key in self.listed()]
        return await asyncio.to_thread(self.keyring.jwks, ids)

    # What every server does.

    def observe(self, changes: Changes) -> None:
        """Track added, changed and removed keys."""
        if has_change_of(changes, "root_keys"):
            moved = [change for change in changes if change.table == "root_keys"]
            self._deleted_ids.update(change.before.key_id for change in moved if change.after is None)
            self.look()

    def look(self) -> None:
        """Reconcile the stored keys with the state."""
        self._changed.set()
        self._must_fetch.set()

    async def run_copies(self) -> None:
        """Fetch missing keys and delete removed ones, until cancelled."""
        self._must_fetch.set()
        while True:
            await self._must_fetch.wait()
            self._must_fetch.clear()
            while self._deleted_ids:
                await asyncio.to_thread(self.keyring.remove, self._deleted_ids.pop())
            if not await self._fetch_missing():
                await wait_for(self._replica.env, self._must_fetch, FETCH_RETRY_S)
                self._must_fetch.set()

    async def _fetch_missing(self) -> bool:
        """Fetch missing keys from servers that have them; returns whether this server now has all."""
        key_ids = [key.key_id for key in self.listed() if is_key_id(key.key_id)]
        available = await asyncio.to_thread(available_keys, self.keyring, key_ids)
        missing = [key_id for key_id in key_ids if key_id not in available] if self._peers.names else []
        fetched = all([await self._fetch(key_id) for key_id in missing])
        return fetched and not any(map(self.keyring.locked, key_ids))

    async def _fetch(self, key_id: str) -> bool:
        for name in sorted(self._peers.names, key=lambda name: name != self._leader.name):
            try:
                async with asyncio.timeout(GIVE_LIMIT_S):
                    key = await self._peers.peer(name).root_key(key_id)
            except (YurtError, TimeoutError):
                continue
            if key.key_id != key_id:
                log.warning("root key ignored, another one was asked for: server=%s asked=%s", name, key_id)
                continue
            try:
                await asyncio.to_thread(self.keyring.add, key)
            except (Invalid, Unavailable) as error:
                log.error("root key cannot be stored: key=%s error=%s", key_id, error)
                return False
            log.info("root key fetched: key=%s server=%s", key_id, name)
            return True
        return False

    # The leader's duty.

    async def run(self) -> None:
        """Publish keys at their time and complete full rotations, until cancelled."""
        if self._config.data_dir:
            await self.active()
        while True:
            self._changed.clear()
            for key in self.listed():
                if key.state == KEY_REKEYING:
                    await self._rekey(key)
            now, due = self._replica.env.now(), self._due()
            if due is not None and due <= now:
                await self._renew(now)
                continue
            await wait_for(self._replica.env, self._changed, (due - now) / NANOSECONDS if due is not None else None)

    def _due(self) -> int | None:
        """The time at which a published key becomes active, or else at which the next one is published."""
        times: list[int] = [key.publish_time for key in self.listed() if key.state == KEY_PREPUBLISHED]
        times += [_begin(key) + self._limit // 2 for key in self.listed() if key.state == KEY_ACTIVE and not times]
        return min(times, default=None)

    @property
    def _limit(self) -> int:
        """The time for which a key is active, in nanoseconds."""
        return round(max(self._config.root_key_rotation_s, ROTATION_MIN_S) * NANOSECONDS)

    async def _renew(self, now: int) -> None:
        """Activate a key, or publish the next one half of its lifetime ahead, because others cache the keys they
        fetched.

        A cluster that was away for longer than that makes its new key active at once.
        """
        if any(key.state == KEY_PREPUBLISHED for key in self.listed()):
            await self._activate(now)
            return
        end = next(_begin(key) + self._limit for key in self.listed() if key.state == KEY_ACTIVE)
        await self.rotate(is_full=False, publish_time=end if end > self._replica.env.now() else 0)

    async def _activate(self, now: int) -> None:
        for key in self.listed():
            if key.state == KEY_PREPUBLISHED and key.publish_time <= now:
                await self._set_state(key, KEY_ACTIVE)

    async def _set_state(self, key: RootKeyMeta, state: KeyState) -> None:
        """Set a key's state, unless it was removed or changed meanwhile: then the keys are reconciled again."""
        basis = (Expectation(table="root_keys", key=key.key_id, index=key.modify_index),)
        with suppress(Stale):
            await self._replica.propose(PutRootKey(key=replace(key, state=state), based_on=basis))

    async def _rekey(self, old: RootKeyMeta) -> None:
        """Reencrypt all variables and secrets of login methods of the old key with the active key."""
        active = await self.active()
        skipped = await self._rekey_methods(old, active)
        skipped += await self._rekey_variables(old, active)
        if not skipped:
            meta = self._replica.state.root_keys.get(old.key_id)
            if meta is not None and meta.state == KEY_REKEYING:
                await self._set_state(meta, KEY_INACTIVE)

    async def _rekey_methods(self, old: RootKeyMeta, active: RootKeyMeta) -> int:
        """Reencrypt the secrets of login methods; returns the number that cannot be decrypted."""
        waiting = self._replica.state.acl_auth_methods.where("root_key", old.key_id)
        if not waiting:
            return 0
        from yurt.server.keys.method_secrets import sealed_method_again

        skipped, again = 0, []
        for method in waiting:
            try:
                again.append(sealed_method_again(self.keyring, method, active.key_id))
            except (Unavailable, Conflict) as error:
                skipped += 1
                log.error("secrets of a login method cannot be encrypted again: method=%s error=%s", method.name, error)
        for at in range(0, len(again), REKEY_BATCH):
            await self._replica.propose(RekeyACLAuthMethods(methods=tuple(again[at : at + REKEY_BATCH])))
        return skipped

    async def _rekey_variables(self, old: RootKeyMeta, active: RootKeyMeta) -> int:
        """Reencrypt variables; returns the number that cannot be decrypted."""
        skipped = 0
        while True:
            waiting = self._replica.state.variables.where("root_key", old.key_id)[skipped:]
            if not waiting:
                break
            batch = []
            for variable in waiting[:REKEY_BATCH]:
                try:
                    batch.append(sealed_again(self.keyring, variable, active.key_id))
                except (Unavailable, Conflict) as error:
                    skipped += 1
                    log.error("variable cannot be encrypted again: path=%s error=%s", variable.path, error)
            if batch:
                await self._replica.propose(RekeyVariables(variables=tuple(batch)))
        return skipped


def _begin(key: RootKeyMeta) -> int:
    """The time from which a key signs: for a key published ahead, its publish time."""
    return key.publish_time or key.create_time


def need_unlocked(keys: Iterable[RootKeyMeta], keyring: Keyring) -> None:
    """Raises Unavailable while the active key is stored here and cannot be opened: creating another one would hide
    that."""
    for key in keys:
        if key.state == KEY_ACTIVE and (why := keyring.locked(key.key_id)):
            raise Unavailable(f"root key {key.key_id} cannot be opened now: {why}")


def available_keys(keyring: Keyring, key_ids: Iterable[str]) -> set[str]:
    """Those of the keys that can be opened here; locked ones are tried again."""
    keyring.retry()
    return {key_id for key_id in key_ids if key_id in keyring}
