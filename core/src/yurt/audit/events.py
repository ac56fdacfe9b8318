"""Audit events: Nomad's envelope and payload, with details of the decision added.

Values come from the route's declaration, the caller's token row and the state, never from headers, the query or a body,
so that no secret can get in. The path is the caller's text: what looks like a secret in it is blanked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from yurt.access import Identity, MadeDecision, ObjectName, Origin, Through
from yurt.access.needs import describe
from yurt.api.times import rfc3339
from yurt.sdk.value import Value
from yurt.structs.acl import SECRET

VERSION: Final = 1
TEXT_MAX: Final = 1_024
"""Characters of a path, and of each other text that the caller chose."""
SECRET_MIN: Final = 8
"""Characters of a text that counts as a secret when it is shown as a token; a shorter one is in many words."""
BLANK: Final = "<redacted>"
SECRET_LENGTH: Final = 36
"""Characters of the secret of a token or a node, a UUID."""
JWT_BEGIN: Final = "eyJ"
JWT: Final = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*")
_encode = msgspec.json.Encoder().encode


class AuditedRequest(Value):
    """The recorded facts of a request, at every stage."""

    id: str
    operation: str
    """The HTTP method."""
    endpoint: str
    """The path without its query."""
    route: str
    """The pattern of the path that was matched; "" for a request that was refused before one was."""
    namespace: str
    origin: Origin
    identity: Identity
    object: ObjectName = ObjectName()
    decisions: tuple[MadeDecision, ...] = ()
    decisions_omitted: int = 0


class AuditedResponse(Value):
    """The outcome of a request."""

    status: int
    is_refused: bool
    reason: str
    """The code of the error (docs/reference/errors.md); "" for none."""
    duration_s: float


Clean = Callable[[str], str]


def cleaner(is_secret: Callable[[str], bool], shown: str) -> Clean:
    """A function that redacts secrets in a caller's text: the shown token, secrets of stored tokens, signed
    identities.
    """

    def clean(text: str) -> str:
        if len(shown) >= SECRET_MIN:
            text = text.replace(shown, BLANK)
        if len(text) < SECRET_LENGTH and JWT_BEGIN not in text:
            return text  # too short for a secret: nearly all texts are
        text = JWT.sub(BLANK, text)
        return SECRET.sub(lambda found: BLANK if is_secret(found[0]) else found[0], text)[:TEXT_MAX]

    return clean


class EncodedRequest(NamedTuple):
    """The parts of a line that the lines of one request share, as JSON."""

    auth: msgspec.Raw
    request: msgspec.Raw
    decisions: msgspec.Raw
    decisions_omitted: int


def encode_request(asked: AuditedRequest, clean: Clean) -> EncodedRequest:
    """The parts of a request's lines; to encode them costs most of a line."""
    return EncodedRequest(
        auth=msgspec.Raw(_encode(_auth(asked.identity, clean))),
        request=msgspec.Raw(_encode(_request(asked, clean))),
        decisions=msgspec.Raw(_encode(list(_decisions(asked.decisions, clean)))),
        decisions_omitted=asked.decisions_omitted,
    )


def line_of(
    asked: EncodedRequest, *, event_id: str, stage: str, at_ns: int, ended: AuditedResponse | None = None
) -> bytes:
    """The line, with its line break."""
    at = rfc3339(at_ns)
    payload: dict[str, Any] = {
        "id": event_id,
        "stage": stage,
        "type": "audit",
        "timestamp": at,
        "version": VERSION,
        "auth": asked.auth,
        "request": asked.request,
        "decisions": asked.decisions,
    }
    if asked.decisions_omitted:
        payload["decisions_omitted"] = asked.decisions_omitted
    if ended is not None:
        payload["response"] = {
            "status_code": ended.status,
            "result": "refused" if ended.is_refused else "allowed",
            "error": ended.reason,
            "duration_ms": round(ended.duration_s * 1000, 3),
        }
    return _encode({"created_at": at, "event_type": "audit", "payload": payload}) + b"\n"


def _auth(who: Identity, clean: Clean) -> dict[str, Any]:
    return {
        "accessor_id": who.accessor_id,
        "name": clean(who.name),
        "type": who.type,
        "global": who.is_global,
        "policies": list(who.policies),
        "resolved_by": who.resolved_by,
        "problem": clean(who.problem),
    }


def _request(asked: AuditedRequest, clean: Clean) -> dict[str, Any]:
    origin = asked.origin
    return {
        "id": asked.id,
        "operation": asked.operation,
        "endpoint": clean(asked.endpoint),
        "route": asked.route,
        "namespace": {"id": clean(asked.namespace)},
        "object": {"type": asked.object.kind, "id": clean(asked.object.id)},
        "request_meta": {
            "remote_address": origin.address,
            "certificate_name": clean(origin.certificate_name),
        },
        "node_meta": {"through": "" if origin.through is Through.NOBODY else origin.through, "relay": origin.relay},
    }


def _decisions(made: Iterable[MadeDecision], clean: Clean) -> Iterable[dict[str, Any]]:
    for need, scope, is_allowed in made:
        places = {name: clean(text) for name, text in scope._asdict().items() if text is not None}
        yield {"need": describe(need), **places, "allowed": is_allowed}
