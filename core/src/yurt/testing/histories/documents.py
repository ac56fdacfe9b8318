"""Objects that are put, read and deleted as a whole and may have dependents: namespaces and node pools.

A dependent (a variable of the namespace, a job of the node pool) needs its object when it is made, and the object
cannot be deleted while it has one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.job_requests import job_document
from yurt.testing.histories.kinds import PreparedRequest, put
from yurt.testing.histories.log_index import NEVER, agrees, lowest, unknown_after


class PutDocument(Request, frozen=True):
    """Create or change the object."""

    mark: str


class DeleteDocument(Request, frozen=True):
    """Delete the object."""


class ReadDocument(Read, frozen=True):
    """Read the object."""


class AddDependent(Request, frozen=True):
    """Create an object that depends on this one."""


class RemoveDependent(Request, frozen=True):
    """Delete the dependent object; succeeds when there is none."""


class ShownDocument(NamedTuple):
    """The object in a body."""

    at: int
    mark: str


class DocumentState(NamedTuple):
    """The object; `at` is NEVER when it does not exist."""

    at: int = NEVER
    mark: str = ""
    has_dependent: bool = False
    last: int = NEVER


class DocumentModel:
    """The sequential behaviour of a document."""

    def initial(self) -> DocumentState:
        """The object does not exist."""
        return DocumentState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: DocumentState, request: Any, answer: Reply | None) -> DocumentState | None:
        """See `Model.step`."""
        low = max(state.last, lowest(state.at))
        if answer is None:
            return _after(state, request, unknown_after(low)) or state
        if answer.is_refusal:
            return state if _after(state, request, NEVER) is None and "not found" not in _words(state, answer) else None
        if isinstance(request, ReadDocument):
            shown: ShownDocument = answer.body
            is_same = state.at != NEVER and agrees(state.at, shown.at) and state.mark == shown.mark
            return state._replace(at=shown.at) if is_same else None
        after = _after(state, request, answer.index) if answer.index > low else None
        return None if after is None else after._replace(last=answer.index)


def _words(state: DocumentState, answer: Reply) -> str:
    """The text of a refusal while the object exists; "" while it does not."""
    return str(answer.body) if state.at != NEVER else ""


def _after(state: DocumentState, request: Any, at: int) -> DocumentState | None:
    """The state after a request; None when it must be refused."""
    match request:
        case PutDocument(mark=mark):
            return state._replace(at=at, mark=mark)
        case RemoveDependent():
            return state._replace(has_dependent=False)
        case _ if state.at == NEVER:
            return None
        case AddDependent():
            return state._replace(has_dependent=True)
        case DeleteDocument():
            return None if state.has_dependent else DocumentState(last=max(state.last, lowest(state.at)))
        case _:
            return state


_CHOICES: Final = {"put": 5, "delete": 6, "read": 6, "add": 6, "remove": 5}


class _DocumentKind:
    """What these kinds share: the choice of the next request, and reading."""

    def __init__(self) -> None:
        self.model = DocumentModel()

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        options: dict[str, Request] = {
            "put": PutDocument(mark),
            "delete": DeleteDocument(),
            "read": ReadDocument(),
            "add": AddDependent(),
            "remove": RemoveDependent(),
        }
        return options[rng.choices(list(_CHOICES), list(_CHOICES.values()))[0]]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadDocument(),)

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return ()


class NamespaceKind(_DocumentKind):
    """A namespace and a variable in it."""

    name = "namespace"

    def key(self, number: int) -> str:
        """A name."""
        return f"space-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at, variable = f"/v1/namespace/{key}", f"/v1/var/inside?namespace={key}"
        match request:
            case PutDocument(mark=mark):
                return put(at, {"Name": key, "Description": mark})
            case DeleteDocument():
                return PreparedRequest("DELETE", at)
            case AddDependent():
                return put(variable, {"Namespace": key, "Path": "inside", "Items": {"a": "b"}})
            case RemoveDependent():
                return PreparedRequest("DELETE", variable)
            case _:
                return PreparedRequest("GET", at)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        return (
            ShownDocument(document["ModifyIndex"], document["Description"])
            if isinstance(request, ReadDocument)
            else None
        )


class NodePoolKind(_DocumentKind):
    """A node pool and a job in it."""

    name = "node pool"

    def key(self, number: int) -> str:
        """A name."""
        return f"pool-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at, job = f"/v1/node/pool/{key}", f"in-{key}"
        match request:
            case PutDocument(mark=mark):
                return put(at, {"Name": key, "Description": mark})
            case DeleteDocument():
                return PreparedRequest("DELETE", at)
            case AddDependent():
                return put("/v1/jobs", {"Job": job_document(job, (1,), {}, NodePool=key)})
            case RemoveDependent():
                return PreparedRequest("DELETE", f"/v1/job/{job}?purge=true")
            case _:
                return PreparedRequest("GET", at)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        return (
            ShownDocument(document["ModifyIndex"], document["Description"])
            if isinstance(request, ReadDocument)
            else None
        )
