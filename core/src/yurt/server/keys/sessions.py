"""Browser sessions: a token in a cookie that scripts cannot read, with its own expiry.

No server remembers a session that lasts. Its text is the session itself, sealed with the root key, which every server
of the region has: its id, the hash of the token's secret, when it began, and when it was renewed last. The token is
looked up for each decision, as with one that is shown itself: when it is deleted or expires, its sessions are over with
the next request. Who signs out ends the session by a row in the state, so that a copy of its cookie ends too; the row
is forgotten when the last cookie could not be shown or renewed any more.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from yurt.access import Caller, InvalidToken, ShownToken
from yurt.acl.lru_cache import LruCache
from yurt.acl.resolver import SESSION_OVER, SIGNED_OUT
from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.sdk.value import UnixNano, seconds
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.login_keys import decoded_base64url
from yurt.server.keys.root_keys import RootKeys
from yurt.server.log.replica import Replica
from yurt.structs.acl import EndedSession
from yurt.structs.commands import EndSession

IDLE_S: Final = 1800.0
"""The seconds after its creation or renewal at which a session ends."""
LIFE_S: Final = 86_400.0
"""The seconds after the sign-in at which a session ends regardless of renewals."""
PREFIX: Final = "ys_"
TEXT_MAX: Final = 1024
CACHED_MAX: Final = 4_096
"""The maximum number of cached sessions: opening one takes a thread, since the key may have to be read from disk."""
UNKNOWN: Final = "the session was not made by a server of this region, or its root key was removed: sign in again"
_CONTEXT: Final = b"session of a browser"
FORGET_S: Final = IDLE_S + 3600.0
"""The seconds for which an ended session is recorded: its cookies have expired by then, with clocks within one hour."""
_ID_BYTES: Final = 16


class Session(NamedTuple):
    """The content of a session."""

    id: str
    secret_hash: str
    started_at: UnixNano
    renewed_at: UnixNano

    @property
    def idle_at(self) -> UnixNano:
        """The time at which it ends without a renewal."""
        return min(UnixNano(self.renewed_at + seconds(IDLE_S)), self.ends_at)

    @property
    def ends_at(self) -> UnixNano:
        """The time at which it ends in any case."""
        return UnixNano(self.started_at + seconds(LIFE_S))


class SealedSession(NamedTuple):
    """A session and its encrypted text."""

    session: Session
    text: str


class _Opened(NamedTuple):
    """A decrypted session, and the root key that encrypted it: without that key it is invalid."""

    session: Session
    key_id: str
    caller: ShownToken


class Sessions:
    """Creates, renews and opens sessions."""

    def __init__(self, replica: Replica, root_keys: RootKeys, keyring: Keyring) -> None:
        self._replica = replica
        self._root_keys = root_keys
        self._keyring = keyring
        self._cache: LruCache[bytes, _Opened] = LruCache(CACHED_MAX)

    async def begin(self, secret_hash: str) -> SealedSession:
        """Create a session of the token with this hash; raises Unavailable without a leader."""
        now = self._replica.env.now()
        session_id = self._replica.env.uuid()
        return await self._sealed(Session(session_id, secret_hash, started_at=now, renewed_at=now))

    async def renew(self, session: Session) -> SealedSession:
        """Extend the session."""
        return await self._sealed(session._replace(renewed_at=self._replica.env.now()))

    async def end(self, session: Session) -> None:
        """End the session with this text; raises Conflict, and Unavailable without a leader."""
        forget_at = self._replica.env.now() + seconds(FORGET_S)
        ended = EndedSession(id=session.id, secret_hash=session.secret_hash, forget_at=forget_at)
        await self._replica.propose(EndSession(session=ended))

    async def caller(self, text: str) -> Caller:
        """The caller of a session."""
        try:
            return (await self._opened(text)).caller
        except Invalid as error:
            return InvalidToken(problem=str(error))

    async def opened(self, text: str) -> Session:
        """The session in a text; raises Invalid if it has ended or was not created here."""
        return (await self._opened(text)).session

    async def _opened(self, text: str) -> _Opened:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        cached = self._cache.get(digest)
        if cached is None:
            cached = await self._replica.env.in_thread(partial(self._open, text))
            self._cache.put(digest, cached)
        state = self._replica.state
        if cached.key_id not in state.root_keys:
            raise Invalid(UNKNOWN)
        if cached.session.id in state.ended_sessions:
            raise Invalid(SIGNED_OUT)
        if cached.session.idle_at <= self._replica.env.now():
            raise Invalid(SESSION_OVER)
        return cached

    async def _sealed(self, session: Session) -> SealedSession:
        key_id = (await self._root_keys.active()).key_id
        plain = msgspec.msgpack.encode(session)
        data = await self._replica.env.in_thread(partial(self._keyring.encrypt, key_id, plain, context=_CONTEXT))
        text = PREFIX + base64.urlsafe_b64encode(UUID(key_id).bytes + data).rstrip(b"=").decode()
        return SealedSession(session, text)

    def _open(self, text: str) -> _Opened:
        try:
            data = decoded_base64url(text[len(PREFIX) : TEXT_MAX])
            key_id = str(UUID(bytes=data[:_ID_BYTES]))
            if key_id not in self._replica.state.root_keys:
                raise Invalid(UNKNOWN)
            plain = self._keyring.decrypt(key_id, data[_ID_BYTES:], context=_CONTEXT)
            session = msgspec.msgpack.decode(plain, type=Session)
            return _Opened(session, key_id, _caller(session, key_id))
        except (binascii.Error, UnicodeError, ValueError, Conflict, Unavailable, Invalid):
            raise Invalid(UNKNOWN) from None


def _caller(session: Session, key_id: str) -> ShownToken:
    return ShownToken(
        secret_hash=session.secret_hash, session_id=session.id, key_id=key_id, valid_until=session.ends_at
    )


def session_key_id(text: str) -> str:
    """The id of the root key that encrypted a session, according to its text; "" if it has none."""
    try:
        return str(UUID(bytes=decoded_base64url(text[len(PREFIX) : TEXT_MAX])[:_ID_BYTES]))
    except (binascii.Error, UnicodeError, ValueError):
        return ""
