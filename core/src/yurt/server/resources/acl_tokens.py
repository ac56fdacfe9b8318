"""Tokens: created, changed, revoked, exchanged, and collected after their expiry.

The secret of a token is in memory while a request makes it, and nowhere afterwards.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from yurt.acl.validation import check_token, check_token_times
from yurt.duties.acl_gc import expired
from yurt.fsm.acl.tokens import FLOOR, last_revocation
from yurt.fsm.basis import expectation
from yurt.sdk.errors import DENIED, Conflict, Invalid, PermissionDenied
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.server.config import ServerConfig
from yurt.server.log.log_writer import Committed, Stale
from yurt.server.log.replica import Replica
from yurt.state import Snapshot
from yurt.structs.acl import CLIENT, MANAGEMENT, SECRET, ACLToken, ACLTokenRoleLink, OneTimeToken, hash_of_secret
from yurt.structs.commands import (
    AnyCommand,
    BootstrapACL,
    CreateACLToken,
    DeleteACLTokens,
    PutOneTimeToken,
    TakeOneTimeToken,
    UpdateACLToken,
)

ONE_TIME_S: Final = 600.0
"""How long a one-time token may be exchanged."""
RESET_FILE: Final = "acl-bootstrap-reset"
"""A file in the server's folder of the data directory, with the reset index that permits another bootstrap."""
UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
INDEX_DIGITS_MAX: Final = 19
_NONCE: Final = b"one-time-key"
"""A fixed nonce: each one-time secret derives a key of its own, which encrypts one text."""


class MadeToken(msgspec.Struct, frozen=True):
    """A stored token and its secret, which is shown only once."""

    token: ACLToken
    secret: str
    log_index: int
    role_names: Mapping[str, str]
    """By id, the names of its roles at `log_index`."""


def made_token(committed: Committed, accessor_id: str, secret: str) -> MadeToken:
    """A token as it is behind the command that made, changed or handed it out."""
    state = committed.state
    token = state.acl_tokens[accessor_id]
    roles = (state.acl_roles.get(link.id) for link in token.roles)
    names = {role.id: role.name for role in roles if role is not None}
    return MadeToken(token, secret, committed.index, names)


class MadeOneTime(msgspec.Struct, frozen=True):
    """A one-time token and its secret."""

    token: OneTimeToken
    secret: str
    log_index: int


class AclTokens:
    """Operations on tokens."""

    def __init__(self, replica: Replica, config: ServerConfig) -> None:
        self._replica = replica
        self._config = config

    async def bootstrap(self, secret: str = "") -> MadeToken:
        """Create the first management token; raises Conflict when one existed and no file permits another."""
        if secret and not UUID.fullmatch(secret):
            raise Invalid("invalid acl token")
        secret = secret or self._replica.env.uuid()
        token = ACLToken(
            accessor_id=self._replica.env.uuid(),
            secret_hash=hash_of_secret(secret),
            name="Bootstrap Token",
            type=MANAGEMENT,
            is_global=True,
            create_time=self._replica.env.now(),
        )
        reset = await asyncio.to_thread(_reset_index, self._config.data_dir)
        committed = await self._replica.propose(BootstrapACL(token=token, reset_index=reset))
        return made_token(committed, token.accessor_id, secret)

    async def create(self, token: ACLToken, secret: str = "") -> MadeToken:
        """Create a token, with given or new ids; raises Invalid or Conflict."""
        secret = secret or self._replica.env.uuid()
        token = replace(token, accessor_id=token.accessor_id or self._replica.env.uuid())
        made = self._new(self._replica.state, token, secret)
        committed = await self._replica.propose(CreateACLToken(token=made))
        return made_token(committed, made.accessor_id, secret)

    async def update(self, token: ACLToken) -> MadeToken:
        """Change a token's rights; raises Invalid."""
        committed = await self._replica.propose(UpdateACLToken(token=_changed(self._replica.state, token)))
        return made_token(committed, token.accessor_id, "")

    async def put(self, token: ACLToken, secret: str, *, seen_index: int) -> MadeToken:
        """Change a token's rights, or create it with these ids where none has its accessor id; raises Invalid.

        The caller knew the cluster as it was at `seen_index`. One who creates a token that was revoked before does so
        on purpose; one that was revoked later stays revoked.
        """
        accessor_id = token.accessor_id

        async def decision(state: Snapshot) -> AnyCommand:
            known = expectation(state, "acl_tokens", accessor_id)
            if accessor_id in state.acl_tokens:
                return UpdateACLToken(token=_changed(state, token), based_on=(known,))
            if problems := _upload_problems(state, token, secret, seen_index):
                raise Invalid(_not_found(accessor_id, *problems))
            revoked = (expectation(state, "acl_revocations", key) for key in (accessor_id, FLOOR))
            return CreateACLToken(token=self._new(state, token, secret), based_on=(known, *revoked))

        try:
            committed = await self._replica.decide(decision)
        except Conflict as error:
            raise Invalid(_not_found(accessor_id, str(error))) from error
        is_new = committed.state.acl_tokens[accessor_id].create_index == committed.index
        return made_token(committed, accessor_id, secret if is_new else "")

    def _new(self, state: Snapshot, token: ACLToken, secret: str) -> ACLToken:
        """A token as it is stored at first; raises Invalid."""
        limits = self._config.acl
        now = self._replica.env.now()
        lasts = UnixNano(now + token.expiration_ttl) if token.expiration_ttl > 0 else UnixNano(0)
        made = replace(
            token,
            secret_hash=hash_of_secret(secret),
            create_time=now,
            expiration_time=token.expiration_time or lasts,
            roles=_linked(state, token.roles),
        )
        check_token(made)
        least, most = seconds(limits.token_min_expiration_ttl_s), seconds(limits.token_max_expiration_ttl_s)
        check_token_times(made, min_ttl=least, max_ttl=most)
        return made

    async def delete(self, accessor_id: str) -> int:
        """Revoke a token; returns the index at which it became invalid. Raises NotFound."""
        return (await self._replica.propose(DeleteACLTokens(accessor_ids=(accessor_id,)))).index

    async def make_one_time(self, token: ACLToken, secret: str) -> MadeOneTime:
        """Create a one-time token for the holder of a token; raises PermissionDenied when that was deleted."""
        once, now = self._replica.env.uuid(), self._replica.env.now()
        sealed = await self._replica.env.in_thread(_sealed, once, secret, token.accessor_id)
        made = OneTimeToken(
            secret_hash=hash_of_secret(once),
            accessor_id=token.accessor_id,
            sealed_secret=sealed,
            expires_at=now + seconds(ONE_TIME_S),
        )
        committed = await self._replica.propose(PutOneTimeToken(token=made, now=now))
        return MadeOneTime(committed.state.one_time_tokens[made.secret_hash], once, committed.index)

    async def exchange_one_time(self, once: str) -> MadeToken:
        """The token of a one-time token, which is consumed; raises PermissionDenied.

        Of several who try at once `apply` lets one through; the row that it deletes is only read before.
        """
        secret_hash = hash_of_secret(once)
        one_time = self._replica.state.one_time_tokens.get(secret_hash)
        if one_time is None:
            raise PermissionDenied(DENIED)
        committed = await self._replica.propose(TakeOneTimeToken(secret_hash=secret_hash, now=self._replica.env.now()))
        token = committed.state.acl_tokens.get(one_time.accessor_id)
        assert token is not None, "apply exchanges a one-time token only while its token exists"
        secret = await self._replica.env.in_thread(_opened, once, one_time)
        return made_token(committed, token.accessor_id, secret)

    async def collect(self, *, age_s: float) -> int:
        """Delete expired tokens older than `age_s` and related objects; the index of the last command, or 0."""
        now, last = self._replica.env.now(), 0
        created_before = UnixNano(now - seconds(age_s))
        is_authority = self._config.authoritative_region in ("", self._config.region)
        for command in tuple(expired(self._replica.state, now, created_before, is_authority=is_authority)):
            with suppress(Stale):
                last = (await self._replica.propose(command)).index
            await self._replica.turns.next()
        return last


def _changed(state: Snapshot, token: ACLToken) -> ACLToken:
    """A token with other rights; raises Invalid."""
    changed = replace(token, roles=_linked(state, token.roles))
    check_token(changed)
    return changed


def _upload_problems(state: Snapshot, token: ACLToken, secret: str, seen_index: int) -> list[str]:
    """Why a token cannot be created with these ids."""
    problems = []
    if not (SECRET.fullmatch(token.accessor_id) and SECRET.fullmatch(secret)):
        problems.append("AccessorID and SecretID must be UUIDs")
    if token.type != CLIENT:
        problems.append("a token created with given ids must have Type client")
    if revoked_at := last_revocation(state, token.accessor_id, after=seen_index):
        revoked = "was revoked at" if token.accessor_id in state.acl_revocations else "may have been revoked up to"
        problems.append(
            f"it {revoked} index {revoked_at}, later than what this request has seen of it (index {seen_index});"
            " to create it again, repeat the request without ModifyIndex"
        )
    return problems


def _not_found(accessor_id: str, *problems: str) -> str:
    return f"cannot find token {accessor_id}, nor create it: {'; '.join(problems)}"


def _linked(state: Snapshot, links: tuple[ACLTokenRoleLink, ...]) -> tuple[ACLTokenRoleLink, ...]:
    """The roles by id; others are looked up by name. `apply` checks that they exist."""
    resolved = []
    for link in links:
        if link.id or not link.name:
            resolved.append(link)
            continue
        role = next(iter(state.acl_roles.where("name", link.name)), None)
        if role is None:
            raise Invalid(f"cannot find role {link.name}")
        resolved.append(ACLTokenRoleLink(id=role.id, name=role.name))
    return tuple(resolved)


def _reset_index(data_dir: str) -> int | None:
    """The index with which an operator permits another bootstrap; None without a file. Raises Invalid."""
    if not data_dir:
        return None
    try:
        with (Path(data_dir) / RESET_FILE).open("rb") as file:
            text = file.read(INDEX_DIGITS_MAX + 2).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(f"{RESET_FILE} in the server's data directory cannot be read: {error.strerror}") from None
    if not text.isdigit() or len(text) > INDEX_DIGITS_MAX:
        raise Invalid(f"{RESET_FILE} in the server's data directory must hold the reset index, a number")
    return int(text)


def _sealed(once: str, secret: str, accessor_id: str) -> bytes:
    """A token's secret, encrypted with the secret of a one-time token; may block."""
    from yurt.server.keys.ciphers import encrypted

    return encrypted(_key_of(once), secret.encode(), nonce=_NONCE, context=accessor_id.encode())


def _opened(once: str, token: OneTimeToken) -> str:
    """The secret in a one-time token; may block. Raises PermissionDenied for another secret."""
    from yurt.server.keys.ciphers import Undecryptable, decrypted

    try:
        return decrypted(_key_of(once), token.sealed_secret, nonce=_NONCE, context=token.accessor_id.encode()).decode()
    except Undecryptable:
        raise PermissionDenied(DENIED) from None


def _key_of(once: str) -> bytes:
    return hashlib.sha256(b"one-time token\0" + once.lower().encode("utf-8", "surrogatepass")).digest()
