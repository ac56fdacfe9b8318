"""Identifies a caller by a credential: the secret of a token or node, an identity (JWT) signed by a root key, or a
browser session.

`aud` and `iss` of an identity are not looked at, as in Nomad: any identity of an allocation may be shown. Whether the
allocation or the node still exists is looked up for each decision (`yurt.acl.resolver`). Signatures that were right are
cached by the hash of their token, because checking one takes some 50 µs; invalid tokens are checked each time, so
that strangers cannot displace cached ones.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from yurt.access import Actor, Caller, InvalidToken, NoToken, ShownNode, ShownToken, ShownWorkload
from yurt.acl.lru_cache import LruCache
from yurt.sdk.errors import PermissionDenied
from yurt.server.keys.keyring import Keyring, is_key_id
from yurt.server.keys.last_secret import LastSecret
from yurt.server.keys.sessions import PREFIX, Sessions, session_key_id
from yurt.server.keys.tokens import INTRODUCTION_KIND, Times, checked_token, end_of, key_id_of, problem_of_times
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.replica import Replica
from yurt.state import Snapshot
from yurt.structs.acl import SECRET, hash_of_secret

CACHED_MAX: Final = 4_096
"""The maximum number of tokens whose verified signature is cached."""
KEY_WAIT_S: Final = 1.0
"""The time in seconds for which a follower waits for a root key that it does not have yet."""
SECRET_LENGTH: Final = 36
"""The number of characters of a token's or node's secret, a UUID."""
NO_TOKEN: Final = NoToken()
NO_ID: Final = "its claims name neither an allocation nor a node"
INTRODUCTION: Final = "an introduction token counts only where its node registers"


class _WorkloadClaims(Times):
    """The claims of an identity that are used."""

    sub: str = ""
    nomad_allocation_id: str = ""
    nomad_namespace: str = ""
    nomad_job_id: str = ""
    nomad_task: str = ""
    nomad_node_id: str = ""


class _Signed(Times):
    """A caller with a token signed by a root key, and its times."""

    caller: ShownWorkload | ShownNode | InvalidToken = InvalidToken(problem=NO_ID)


class Callers:
    """Identifies callers by their credentials."""

    def __init__(self, replica: Replica, leader: CurrentLeader, keyring: Keyring, sessions: Sessions) -> None:
        self.sessions = sessions
        self._replica = replica
        self._leader = leader
        self._keyring = keyring
        self._signed: LruCache[bytes, _Signed] = LruCache(CACHED_MAX)
        self._tokens: object = None
        """The table of tokens from which `_of_secrets` was computed."""
        self._of_secrets: dict[bytes, ShownToken] = {}
        """Callers by digest of their secrets as written: formatting the digest and normalising the spelling would cost
        as much again per request."""

    def secret(self, token: str) -> Caller | None:
        """The caller of a text that is not an identity; identities are checked first."""
        if not token:
            return NO_TOKEN
        if len(token) != SECRET_LENGTH:
            return None
        # Looked up before its form is checked, which costs more: nothing else has the digest of a stored secret.
        try:
            digest = sha256(token.encode()).digest()
        except UnicodeEncodeError:
            return None  # bytes that were no UTF-8
        state = self._replica.writer.state  # each call counts here: this is done for every request
        if state.acl_tokens is not self._tokens:
            self._tokens = state.acl_tokens
            self._of_secrets.clear()
        try:
            return self._of_secrets[digest]
        except KeyError:
            pass
        if not SECRET.fullmatch(token):
            return None
        if len(self._of_secrets) >= CACHED_MAX:
            self._of_secrets.clear()
        caller = shown_secret(state, token)
        if isinstance(caller, ShownToken) and state.acl_tokens.count_where("secret", caller.secret_hash):
            self._of_secrets[digest] = caller
        return caller

    def last_secret(self, token: str, actor: Actor) -> LastSecret | None:
        """The stored secret of a caller returned by `secret`, for its connection to keep; None without one."""
        tokens, caller = self._replica.writer.state.acl_tokens, actor.caller
        if isinstance(caller, ShownToken) and tokens.count_where("secret", caller.secret_hash):
            return LastSecret(token, tokens, actor, {})
        return None

    def is_shown_again(self, last: LastSecret, token: str) -> bool:
        """Whether the token equals the connection's last secret, and no token has changed since.

        Nearly all connections show one secret, and to compute its digest costs more than all else that is asked about
        a caller. The comparison takes the same time wherever the texts differ, because a proxy may send requests of
        several callers over one connection.
        """
        try:
            return last.tokens is self._replica.writer.state.acl_tokens and compare_digest(last.text, token)
        except TypeError:
            return False  # not ASCII, as every secret is

    async def shown(self, token: str) -> Caller:
        """The caller of this text; an invalid token has no rights, not even those of anonymous callers.

        A server that follows may learn of a new root key later than the caller got its identity, and waits a moment.
        """
        caller = self.secret(token)
        if caller is not None:
            return caller
        if token.startswith(PREFIX):
            await self._wait_key(session_key_id(token))
            return await self.sessions.caller(token)
        key_id = key_id_of(token)
        if not is_key_id(key_id):
            return InvalidToken(problem="the token is neither a secret nor a signed identity")
        await self._wait_key(key_id)
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        signed = self._signed.get(digest)
        if signed is None:
            try:
                signed = await self._checked(token, key_id)
            except PermissionDenied as error:
                return InvalidToken(problem=str(error))
            self._signed.put(digest, signed)
        problem = problem_of_times(signed, self._replica.env.now())
        return InvalidToken(problem=f"the identity does not count: {problem}") if problem else signed.caller

    async def _wait_key(self, key_id: str) -> None:
        if self._leader.is_local or key_id in self._replica.state.root_keys:
            return
        await self._replica.wait_past(
            [("root_keys", key_id)], lambda state: key_id in state.root_keys, min_index=0, timeout_s=KEY_WAIT_S
        )

    async def _checked(self, token: str, key_id: str) -> _Signed:
        """The caller of a signed token, verified in a thread, because the keyring may have to be read from disk."""
        keys = self._replica.state.root_keys
        claims = await self._replica.env.in_thread(partial(checked_token, self._keyring, token, keys, _WorkloadClaims))
        return _Signed(exp=claims.exp, nbf=claims.nbf, iat=claims.iat, caller=_caller(claims, key_id))


def shown_secret(state: Snapshot, secret: str) -> ShownToken | ShownNode:
    """The caller of a secret: of a node if there is one with it, else of a token."""
    digest = hash_of_secret(secret)
    if not state.acl_tokens.count_where("secret", digest):
        for node_id in state.nodes.keys_where("secret", digest):
            return ShownNode(node_id=node_id)
    return ShownToken(secret_hash=digest)


def _caller(claims: _WorkloadClaims, key_id: str) -> ShownWorkload | ShownNode | InvalidToken:
    """The kind of caller by the claims: only identities of workloads name an allocation."""
    until = end_of(claims)
    if claims.nomad_allocation_id:
        return ShownWorkload(
            alloc_id=claims.nomad_allocation_id,
            namespace=claims.nomad_namespace,
            job=claims.nomad_job_id,
            task=claims.nomad_task,
            key_id=key_id,
            valid_until=until,
        )
    if claims.nomad_node_id:
        return ShownNode(node_id=claims.nomad_node_id, key_id=key_id, valid_until=until)
    is_introduction = claims.sub.startswith(f"{INTRODUCTION_KIND}:")
    return InvalidToken(problem=INTRODUCTION if is_introduction else NO_ID)
