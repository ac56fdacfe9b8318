"""The frames on a connection: messages of one or more frames, in msgpack.

A call has an id of its caller: the end that dialled counts odd numbers, the other one even ones. The receiver of the
items of a stream grants them in advance, so a slow reader stops the sender of its own stream and nobody else's.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from yurt.sdk import errors
from yurt.sdk.errors import NO_ERROR, STATUS_MAX, Unavailable, YurtError, reason_of

PROTOCOL = 2
"""The version of these frames; ends of different versions do not speak to each other."""
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""The largest message that an end takes."""
GREETING_BYTES_MAX = 64 * 1024
"""The largest message accepted from an end that has not identified itself."""
GATHER_BYTES = 256 * 1024
"""Frames that wait are sent together, up to this."""
FRAME_BYTES = 32
"""The overhead of a frame in addition to its content when frames are batched, bytes."""
FRAMES_MAX = GATHER_BYTES // FRAME_BYTES + 1
"""Frames in a message."""
WINDOW = 16
"""Items of a stream that may be under way."""
UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""Errors of decoding untrusted bytes: invalid UTF-8 does not raise one of msgspec's own errors."""


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One step of a call."""

    id: int


class Ask(Frame, tag=1, frozen=True):
    """Begin a call."""

    method: str
    request: bytes


class Answer(Frame, tag=2, frozen=True):
    """The final answer of a call."""

    answer: bytes


class Failure(Frame, tag=3, frozen=True):
    """The call failed; `kind` names one of the classes in `yurt.sdk.errors`, the other fields describe the error.

    An end of an earlier version sends no more than the kind and the text.
    """

    kind: str
    text: str
    reason: str = ""
    status: int = 0
    is_transient: bool | None = None


class Item(Frame, tag=4, frozen=True):
    """An item of a stream, from either end."""

    item: bytes


class End(Frame, tag=5, frozen=True):
    """The end of the sender's stream."""


class Cancel(Frame, tag=6, frozen=True):
    """The caller no longer wants the call."""


class Grant(Frame, tag=7, frozen=True):
    """The receiver accepts this many further items."""

    count: int


AnyFrame = Ask | Answer | Failure | Item | End | Cancel | Grant

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Annotated[list[AnyFrame], msgspec.Meta(max_length=FRAMES_MAX)])

_KINDS: dict[str, type[YurtError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, YurtError) and not name.startswith("_")
}


class Hello(msgspec.Struct, kw_only=True, frozen=True):
    """The first message of the dialling end: its identity. The answer is a Welcome, or a refusal that ends it."""

    protocol: int = PROTOCOL
    version: str = ""
    role: str = "client"
    region: str = ""
    name: str = ""
    node_id: str = ""
    secret_id: str = ""
    intro_token: str = ""


class Welcome(msgspec.Struct, kw_only=True, frozen=True):
    """The other end's answer; `problem` is set when it refuses the connection.

    `rpc_addr` is the address under which it knows itself, the one that lists of servers name.
    """

    protocol: int = PROTOCOL
    version: str = ""
    region: str = ""
    name: str = ""
    rpc_addr: str = ""
    problem: str = ""
    kind: str = ""
    reason: str = ""


def encode(frames: list[AnyFrame]) -> bytes:
    """One message."""
    return _encoder.encode(frames)


def decode(message: bytes) -> list[AnyFrame]:
    """The frames of a message; raises one of UNREADABLE for malformed data."""
    found: list[AnyFrame] = _decoder.decode(message)
    return found


def failure(call_id: int, error: YurtError) -> Failure:
    """The frame of an error."""
    return Failure(call_id, kind_of(error), str(error), error.reason.value, error.status, error.is_transient)


def raised(frame: Failure) -> YurtError:
    """The error of a failed call, as far as this end knows its fields."""
    error = error_of(frame.kind, frame.text, frame.reason)
    if NO_ERROR <= frame.status <= STATUS_MAX:
        error.status = frame.status
    if frame.is_transient is not None:
        error.is_transient = frame.is_transient
    return error


def refusal(error: YurtError) -> Welcome:
    """The answer that refuses a connection."""
    return Welcome(problem=str(error), kind=kind_of(error), reason=error.reason.value)


def kind_of(error: YurtError) -> str:
    """The closest error class that the other end knows."""
    return next((each.__name__ for each in type(error).__mro__ if each.__name__ in _KINDS), "YurtError")


def error_of(kind: str, text: str, reason: str = "") -> YurtError:
    """An error by the name of its class; an unknown class becomes a failure of the far side.

    Without a reason that this end knows, the error has that of its class.
    """
    return _KINDS.get(kind, Unavailable)(text, reason=reason_of(reason))
