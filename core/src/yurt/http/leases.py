"""Leases of open requests: their rights are checked again while they stay open.

A request is decided about once, before its handler begins. One that stays open, such as a log that is followed, a
command in a task or the event stream, may outlive the token, the policy or the role that it was let in with. So its
rights are checked again each `CHECK_S`, from the same values: the route's need in the request's scope, and what the
handler has added (`also_needs`), such as the namespace of the allocation that it found. Once they do not suffice, or
nobody can tell whether they do, the lease ends, and the request with it:

- a handler that waits for the end (`lost`) ends in its own way: a websocket with a close code and the reason, the event
  stream with a last line;
- any other handler is cancelled. An answer that has not begun is the refusal; one that has begun breaks off without its
  last chunk, so it does not look like a whole one.

Three kinds of requests have no lease to lose. One that waits for nothing, as most reads, ends before anything can
change. One that changes something ends with `apply`'s answer, because to cancel it would leave its caller without the
outcome. A blocking query shows nothing while it waits, and is checked again when it wakes
(`yurt.http.answers.changed_view`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from yurt.access import Access, Need, Scope
from yurt.runtime.env import Env
from yurt.sdk.errors import PermissionDenied, YurtError

log = logging.getLogger(__name__)

CHECK_S: Final = 1.0
"""Seconds between two decisions about an open request."""
ENDED: Final = "Permission denied: the rights of this request have ended"

Learn = Callable[[], Awaitable[None]]
"""Updates the authority's knowledge of the caller; raises a YurtError when it cannot."""


class OpenLeases:
    """The leases of the open requests of one agent, of which most last for a millisecond.

    A timer for each of them would cost more than the decisions about it. So one timer looks every half `CHECK_S` which
    leases were there at its last look too, and begins to watch over these.
    """

    __slots__ = ("_env", "_is_looking", "_new", "_seen")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._new: set[Lease] = set()
        """Leases that have begun since the last look."""
        self._seen: set[Lease] = set()
        self._is_looking = False

    def add(self, lease: Lease) -> None:
        """Watch over a lease if it lasts."""
        self._new.add(lease)
        if not self._is_looking:
            self._is_looking = True
            self._env.call_later(CHECK_S / 2, self._look)

    def discard(self, lease: Lease) -> None:
        """Do not watch over a lease; no effect when it is watched over already."""
        self._new.discard(lease)
        self._seen.discard(lease)

    async def pause(self) -> None:
        """Wait until the next decision about a lease."""
        await self._env.sleep(CHECK_S)

    def _look(self) -> None:
        lasting, self._seen, self._new = self._seen, self._new, set()
        self._is_looking = bool(self._seen)
        if self._is_looking:
            self._env.call_later(CHECK_S / 2, self._look)
        for lease in lasting:
            lease.begin_watch()


class Lease:
    """What one open request is allowed to stay open for."""

    __slots__ = (
        "_access",
        "_checks",
        "_end",
        "_is_closed",
        "_is_suspended",
        "_learn",
        "_open",
        "_refusal",
        "_scope",
        "_task",
        "_watch",
    )

    def __init__(self, access: Access, open_leases: OpenLeases, learn: Learn) -> None:
        self._access = access
        self._open = open_leases
        self._learn = learn
        self._scope: Scope | None = None
        """What the route's need was held against; None before the request begins."""
        self._checks: list[Callable[[], None]] = []
        """What handlers have added."""
        self._refusal: YurtError | None = None
        self._end: asyncio.Future[None] | None = None
        self._task: asyncio.Task[object] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._is_closed = False
        self._is_suspended = False

    @property
    def refusal(self) -> YurtError | None:
        """Why the lease has ended; None while it lasts."""
        return self._refusal

    def also_needs(self, scope: Scope, need: Need | None = None) -> None:
        """Keep the request open as long as it has its own rights, or `need` in the scope."""
        access = self._access if need is None else self._access.narrowed(need)

        def check() -> None:
            access.renew()
            access.require(scope)

        self._checks.append(check)

    def also(self, check: Callable[[], None]) -> None:
        """The request stays open as long as the check raises no YurtError."""
        self._checks.append(check)

    async def lost(self) -> NoReturn:
        """Wait until the lease has ended, and raise the reason. The waiting request ends itself, uncancelled."""
        if self._end is None:
            self._end = asyncio.get_running_loop().create_future()
        await self._end
        assert self._refusal is not None, "a lease ends with a reason"
        raise self._refusal

    def begin(self, scope: Scope) -> None:
        """Watch over the request of the current task from now on."""
        self._scope = scope
        self._task = asyncio.current_task()
        if not self._is_suspended:
            self._open.add(self)

    def raise_refusal(self) -> None:
        """For the cancelled request of the current task: raises why the lease has ended, if it has."""
        task = self._task
        if self._refusal is not None and task is not None:
            task.uncancel()
            raise self._refusal from None

    def suspend(self) -> None:
        """Suspend checks while the request shows nothing; it decides itself before it continues."""
        self._is_suspended = True
        self._open.discard(self)

    def resume(self) -> None:
        """Watch over the request again."""
        self._is_suspended = False
        if self._task is not None and self._watch is None:
            self._open.add(self)

    @property
    def is_watched(self) -> bool:
        """Whether the request has lasted long enough to be checked again."""
        return self._watch is not None

    def forget(self) -> None:
        """The request has ended before it was watched over, as most do."""
        self._is_closed = True
        self._open.discard(self)

    async def close(self) -> None:
        """The request has ended."""
        self.forget()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait((self._watch,))

    def begin_watch(self) -> None:
        """Check again from now on."""
        # Few requests last so long, therefore only those cost a task.
        self._watch = asyncio.ensure_future(self._keep_checking())  # noqa: TID251 - `close` ends it

    async def _keep_checking(self) -> None:
        try:
            while True:
                await self._learn()
                self._decide()
                await self._open.pause()
        except PermissionDenied:
            self._refuse(PermissionDenied(ENDED))
        except YurtError as error:
            self._refuse(error)
        except Exception:
            log.exception("rights of an open request cannot be decided: the request ends")
            self._refuse(PermissionDenied(ENDED))

    def _decide(self) -> None:
        """Raises a YurtError where the request may not stay open."""
        if self._scope is not None:
            self._access.renew()
            self._access.require(self._scope)
        for check in self._checks:
            check()

    def _refuse(self, error: YurtError) -> None:
        if self._is_closed:
            return
        self._refusal = error
        if self._end is not None:
            if not self._end.done():
                self._end.set_result(None)
        elif self._task is not None:
            self._task.cancel()
