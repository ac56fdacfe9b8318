"""Logins by OIDC in progress: auth-url begins them, complete-auth ends them.

No server remembers them, so that they survive a change of leaders and callers without a token use no memory: the
`state` that the provider hands back is the request itself, sealed with the root key, which every server of the region
has. It opens only with the login method, the client nonce and the redirect address of the beginning; its seed gives the
nonce of the ID token, the PKCE verifier and the accessor id of the token. So a request is used once: `apply` stores one
token of an accessor id. The leader also remembers the requests that it has seen, and refuses a second attempt at once.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections import OrderedDict
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.sdk.value import UnixNano, seconds
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.login_keys import decoded_base64url
from yurt.state import Snapshot
from yurt.structs.acl import ACLAuthMethod

REQUEST_S: Final = 300.0
"""The time in seconds that a user may take in the browser."""
STATE_MAX: Final = 1024
SEEN_MAX: Final = 10_000
PREFIX: Final = "st_"
UNKNOWN: Final = "no OIDC request found for client nonce"
_ID_BYTES: Final = 16


class Parties(NamedTuple):
    """The parties to which a request is bound."""

    method: str
    client_nonce: str
    redirect_uri: str


class LoginRequest(NamedTuple):
    """A login that has begun."""

    seed: bytes
    method_index: int
    """The modify index of the login method; a changed method ends the login."""
    expires_at: UnixNano

    @property
    def nonce(self) -> str:
        """The value that the ID token must repeat."""
        return self._derived("nonce").hex()

    @property
    def verifier(self) -> str:
        """The PKCE verifier (RFC 7636)."""
        return self._derived("verifier").hex()

    @property
    def accessor_id(self) -> str:
        """The accessor id of the token."""
        return str(UUID(bytes=self._derived("accessor")[:_ID_BYTES], version=4))

    def _derived(self, use: str) -> bytes:
        return hmac.digest(self.seed, use.encode(), "sha256")


def new_request(env: Env, method: ACLAuthMethod) -> LoginRequest:
    """A new login request, valid from now on."""
    seed = UUID(env.uuid()).bytes + UUID(env.uuid()).bytes
    return LoginRequest(seed, method.modify_index, UnixNano(env.now() + seconds(REQUEST_S)))


def sealed_request(keyring: Keyring, key_id: str, request: LoginRequest, parties: Parties) -> str:
    """The `state` of a request."""
    data = keyring.encrypt(key_id, msgspec.msgpack.encode(request), context=_context(parties))
    return PREFIX + base64.urlsafe_b64encode(UUID(key_id).bytes + data).rstrip(b"=").decode()


def opened_request(keyring: Keyring, state: Snapshot, sealed: str, parties: Parties) -> LoginRequest:
    """The request in a `state`; raises Invalid if it is not of these parties, without the reason."""
    try:
        data = decoded_base64url(sealed[len(PREFIX) : STATE_MAX]) if sealed.startswith(PREFIX) else b""
        key_id = str(UUID(bytes=data[:_ID_BYTES]))
        if key_id not in state.root_keys:
            raise Invalid(UNKNOWN)
        text = keyring.decrypt(key_id, data[_ID_BYTES:], context=_context(parties))
        return msgspec.msgpack.decode(text, type=LoginRequest)
    except (binascii.Error, UnicodeError, ValueError, Conflict, Unavailable, Invalid):
        raise Invalid(UNKNOWN, status=500) from None


class SeenRequests:
    """The requests that this server was asked to complete, for as long as they are valid."""

    def __init__(self) -> None:
        self._until: OrderedDict[str, UnixNano] = OrderedDict()

    def take(self, request: LoginRequest, now: UnixNano) -> None:
        """Mark a request as used; raises Invalid for one that has expired or was used."""
        while self._until and (len(self._until) > SEEN_MAX or next(iter(self._until.values())) <= now):
            self._until.popitem(last=False)
        if request.expires_at <= now or request.accessor_id in self._until:
            raise Invalid(UNKNOWN, status=500)
        self._until[request.accessor_id] = request.expires_at


def _context(parties: Parties) -> bytes:
    """The context that binds a state to its parties; lengths separate their texts."""
    return b"oidc login\0" + msgspec.msgpack.encode(parties)
