"""Operations as clients saw them, and the interface of a sequential model.

An operation has an interval, from the moment before the request was sent to the moment after the answer was read. One
whose outcome is unknown (connection lost, time over, "may or may not be stored") has no end: it may take effect at any
later time, or never. A request that was refused without regard to any object (nobody leads, too many requests) has no
effect at all and belongs to no history: were it carried out nevertheless, later answers would be inexplicable.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import msgspec

S = TypeVar("S", bound=Hashable)


class Request(msgspec.Struct, frozen=True):
    """A request of a client on one object; its text appears in counterexamples."""

    is_read: ClassVar[bool] = False
    """It changes nothing, whatever comes back."""


class Read(Request, frozen=True):
    """A request that changes nothing."""

    is_read: ClassVar[bool] = True


class Reply(msgspec.Struct, frozen=True):
    """An answer: the HTTP status, X-Nomad-Index (0: none), and the part of the body that the models need."""

    status: int
    index: int = 0
    body: Any = None

    @property
    def is_refusal(self) -> bool:
        """Whether the request was refused."""
        return self.status >= 400


class Operation(NamedTuple):
    """A request on one object; times are nanoseconds on one clock, `returned` is None for an unknown outcome."""

    number: int
    client: int
    key: str
    request: Request
    invoked: int
    returned: int | None = None
    answer: Reply | None = None

    @property
    def is_known(self) -> bool:
        """Whether the client received an answer."""
        return self.returned is not None

    @property
    def is_idle(self) -> bool:
        """Whether it has no effect in any state: a read or a refusal."""
        return self.request.is_read or (self.answer is not None and self.answer.is_refusal)


History = tuple[Operation, ...]


class Model(Protocol[S]):
    """The sequential behaviour of one kind of object."""

    def initial(self) -> S:
        """The state before the first operation."""
        ...

    def step(self, state: S, request: Any, answer: Reply | None) -> S | None:
        """The state after the request; None when a sequential object in `state` could not have given this answer.

        Without an answer the outcome is unknown: the state after the request took effect, or `state` itself when it
        would have had none.
        """
        ...

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The log index at which the request took effect according to the answer; None when it shows none."""
        ...
