"""Decides requests on an agent without a server, from the caller's rights as a server reports them.

The rights of a caller are asked for when a request comes, and kept for `ttl_s` from the moment of asking, at most until
the token expires. So a revoked token, a changed policy or a changed role counts here after `ttl_s` at the latest, by
this agent's own monotonic clock: no clock of another agent, and no answer that came late, makes it longer. Rights that
refuse a request are older than `REFUSED_S` only where nothing newer can be had, so a new token counts almost at once.

Nothing fails open: without a server that answers, and without rights that are still kept, every request is refused
that needs any right. Requests that stay open (`yurt.http.leases`) are refused with that reason too.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from yurt.access import (
    ANYWHERE,
    Actor,
    Caller,
    Decision,
    Identity,
    InvalidToken,
    Need,
    NoToken,
    Permissions,
    Scope,
    ShownToken,
)
from yurt.access.authority import ALLOW_NOBODY
from yurt.access.needs import satisfied
from yurt.acl import identities
from yurt.acl.caller_rights import identity_in, rights_of
from yurt.acl.decisions import decide
from yurt.acl.fixed_rights import FixedRights
from yurt.acl.lru_cache import LruCache
from yurt.acl.rights import AuthenticationLevel, Rights
from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable, YurtError
from yurt.sdk.value import NANOSECONDS
from yurt.structs.acl import SECRET, hash_of_secret
from yurt.structs.rpc import CallerRights, ShownCredential

TTL_MIN_S: Final = 1.0
"""A request is decided about several times while it is carried out."""
REFUSED_S: Final = 2.0
"""How long refused rights, unknown tokens included, are trusted before they are queried again."""
FAILED_S: Final = 1.0
"""How long no server is queried after one did not answer: requests would queue for the same failure."""
ASK_LIMIT_S: Final = 5.0
CALLERS_MAX: Final = 512
REFUSED_CALLERS_MAX: Final = 256
"""Callers without rights are kept separately, so that guessing cannot evict other callers."""
ASKS_MAX: Final = 32
"""Questions to the servers at a time."""
NO_TOKEN: Final = "the token is neither a secret nor a signed identity"
NO_ANSWER: Final = "no server tells this agent what the token may do, so it decides nothing; it runs no server itself"

Ask = Callable[[ShownCredential], Awaitable[CallerRights]]
"""Asks a server for the rights of a caller."""


class _TimedRights(NamedTuple):
    rights: Rights
    identity: Identity
    new_until_s: float
    until_s: float


class ServerAuthority:
    """Decides about callers on an agent without a server."""

    def __init__(self, ask: Ask, env: Env, *, ttl_s: float) -> None:
        """`ttl_s` is for how long an answer of a server counts."""
        self._ask = ask
        self._env = env
        self._ttl_s = max(ttl_s, TTL_MIN_S)
        self._permitted: LruCache[Caller, _TimedRights] = LruCache(CALLERS_MAX)
        self._refused: LruCache[Caller, _TimedRights] = LruCache(REFUSED_CALLERS_MAX)
        self._asking: dict[Caller, asyncio.Lock] = {}
        self._slots = asyncio.Semaphore(ASKS_MAX)
        self._failure = ""
        self._failed_until_s = 0.0

    def caller(self, token: str) -> Caller:
        """The caller of this text, whose rights a server knows."""
        if not token:
            return NoToken()
        if SECRET.fullmatch(token):
            return ShownToken(secret_hash=hash_of_secret(token))
        if not token.isascii():
            return InvalidToken(problem=NO_TOKEN)
        # Other than that of a secret, the spelling of an identity matters.
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        return ShownToken(secret_hash=f"identity {digest}")

    async def learn(self, actor: Actor, token: str, *, is_refused: bool = False) -> None:
        """Query the rights of the actor with this token, unless known; raises Unavailable.

        `is_refused`: the present state would refuse the actor, so it must not be old.
        """
        caller = actor.caller
        if isinstance(caller, InvalidToken):
            return  # it has no rights, whatever a server knows
        if self._is_cached(caller, is_refused=is_refused):
            return
        lock = self._asking.setdefault(caller, asyncio.Lock())
        try:
            async with lock:  # one question for all requests of a caller
                if not self._is_cached(caller, is_refused=is_refused):
                    await self._learn(caller, token)
        finally:
            if not lock.locked():
                self._asking.pop(caller, None)

    def preparation(self, actor: Actor) -> None:
        """Nothing takes long here: the servers have read the policies."""

    def recall(self, actor: Actor, need: Need, scope: Scope) -> None:
        """No decision is remembered: the rights are, for a while."""

    def allows(self, actor: Actor, need: Need, scope: Scope) -> bool:
        """Whether the actor has the need's rights on objects in the scope."""
        cached = self._cached_rights(actor.caller)
        if cached is None:
            return satisfied(need, lambda _: False, has_row=True)
        return cached.rights.allows(need, scope)

    def decide(self, actor: Actor, need: Need, scope: Scope) -> Decision:
        """As `allows`."""
        cached = self._cached_rights(actor.caller)
        if cached is None:
            return Decision(is_allowed=self.allows(actor, need, scope), reason=self.identify(actor).problem)
        return decide(cached.rights, need, scope)

    def allows_everywhere(self, actor: Actor, need: Need) -> bool:
        """Whether `allows` is true in every scope."""
        cached = self._cached_rights(actor.caller)
        return self.allows(actor, need, ANYWHERE) if cached is None else cached.rights.allows_everywhere(need)

    def namespaces_allowed(self, actor: Actor, need: Need, names: frozenset[str]) -> None:
        """Unknown, as `standing`."""

    def standing(self, actor: Actor) -> None:
        """Unknown: this agent has no lists that callers could share."""

    def fixed(self, actor: Actor, need: Need) -> Permissions:
        """The rights that a server gave the actor, for a thread."""
        cached = self._cached_rights(actor.caller)
        return ALLOW_NOBODY if cached is None else FixedRights(cached.rights)

    def identify(self, actor: Actor) -> Identity:
        """The actor's identity according to a server, without the names of policies."""
        cached = self._cached_rights(actor.caller)
        if cached is not None:
            return cached.identity
        if isinstance(actor.caller, InvalidToken):
            return Identity(resolved_by=identities.INVALID, problem=actor.caller.problem)
        return Identity(resolved_by="no token" if isinstance(actor.caller, NoToken) else "token", problem=NO_ANSWER)

    def is_secret(self, text: str) -> bool:
        """Whether the text is the secret of a token that was shown here lately."""
        return bool(SECRET.fullmatch(text)) and self._permitted.get(self.caller(text)) is not None

    def _cached_rights(self, caller: Caller) -> _TimedRights | None:
        cached = self._permitted.get(caller) or self._refused.get(caller)
        return cached if cached is not None and self._env.monotonic() < cached.until_s else None

    def _is_cached(self, caller: Caller, *, is_refused: bool) -> bool:
        cached = self._cached_rights(caller)
        return cached is not None and not (is_refused and self._env.monotonic() >= cached.new_until_s)

    async def _learn(self, caller: Caller, token: str) -> None:
        now_s = self._env.monotonic()
        if now_s < self._failed_until_s:
            raise Unavailable(self._failure)
        try:
            async with self._env.timeout(ASK_LIMIT_S), self._slots:
                requested_s = self._env.monotonic()  # what the server says is at least as new as the question
                answer = await self._ask(_credential(token))
        except (YurtError, TimeoutError) as error:
            reason = str(error) or f"none answered within {ASK_LIMIT_S:g} s"
            self._failure = f"{NO_ANSWER}: {reason}"
            self._failed_until_s = self._env.monotonic() + FAILED_S
            raise Unavailable(self._failure) from None
        self._keep(caller, rights_of(answer), answer, requested_s)

    def _keep(self, caller: Caller, rights: Rights, answer: CallerRights, requested_s: float) -> None:
        has_no_rights = rights.kind is AuthenticationLevel.NOBODY
        lasts_s = REFUSED_S if has_no_rights else self._ttl_s
        if answer.lifetime is not None:
            lasts_s = min(lasts_s, answer.lifetime / NANOSECONDS)
        cached = _TimedRights(rights, identity_in(answer), requested_s + REFUSED_S, requested_s + lasts_s)
        (self._refused if has_no_rights else self._permitted).put(caller, cached)
        (self._permitted if has_no_rights else self._refused).discard(caller)


def _credential(token: str) -> ShownCredential:
    """The credential as sent to a server: only the hash of a secret."""
    if not token:
        return ShownCredential()
    if SECRET.fullmatch(token):
        return ShownCredential(secret_hash=hash_of_secret(token))
    return ShownCredential(identity=token)
