"""The interface of a kind of object to which random requests are sent."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from yurt.testing.histories.history import Model, Operation, Reply, Request


class PreparedRequest(NamedTuple):
    """A request ready to be sent."""

    method: str
    path: str
    body: bytes | None = None
    token: str = ""
    """The secret to show instead of the clients' own."""


class Kind(Protocol):
    """A kind of object: its requests over HTTP, the choice of the next one, and its sequential model."""

    @property
    def name(self) -> str:
        """Its name in reports."""
        ...

    @property
    def model(self) -> Model[Any]:
        """Its sequential behaviour."""
        ...

    def key(self, number: int) -> str:
        """A name that no object has had."""
        ...

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """The HTTP request of a model's request."""
        ...

    def body_of(self, request: Any, document: Any) -> Any:
        """The part of a successful answer's body that the model needs."""
        ...

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """The next request on an object after these operations; `mark` is unique to this request."""
        ...

    def last_reads(self) -> Sequence[Request]:
        """Reads that together show the whole object."""
        ...

    def records(self, key: str) -> Sequence[str]:
        """Paths of further records about the object, which are read after a violation."""
        ...


def put(path: str, document: Any = None) -> PreparedRequest:
    """A PUT with a JSON body."""
    return PreparedRequest("PUT", path, None if document is None else json.dumps(document).encode())


def job_records(key: str) -> Sequence[str]:
    """Paths of the records about a job."""
    at = f"/v1/job/{key}"
    return at, f"{at}/versions", f"{at}/deployments?all=true", f"{at}/evaluations", f"{at}/allocations?all=true"


def answered(status: int, index: str, text: str, kind: Kind, request: Any) -> Reply:
    """An answer for the models; bodies of refusals stay text, except JSON objects (409)."""
    at = int(index) if index.isdecimal() else 0
    if status >= 400 and not text.startswith("{"):
        return Reply(status, at, text.strip())
    return Reply(status, at, kind.body_of(request, json.loads(text) if text else None))


def latest_index(past: Sequence[Operation], rng: random.Random) -> int:
    """An index that a client may believe to be current: mostly the latest answered, sometimes an older one."""
    seen = [each.answer.index for each in past[-12:] if each.answer is not None and not each.answer.is_refusal]
    if not seen:
        return 1
    return max(seen) if rng.random() < 0.8 else rng.choice(seen)
