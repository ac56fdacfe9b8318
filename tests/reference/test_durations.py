"""Every duration that a request may carry is accepted as nanoseconds and as text, and written as Nomad writes it.

The fields are found by walking the bodies that handlers decode. A duration is a field of type `Duration`, or one that
Nomad's API types have as one (`durations.txt`, compared with the reference where it lies beside the checkout).
"""

from __future__ import annotations

import ast
import importlib
import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
import yurt.http
from yurt.api.decode import decode_value
from yurt.sdk.value import Duration
from yurt.server.config import AclConfig
from yurt.structs.job import Job
from yurt.testing.http_api import NODE_ID, add_ready_node, job_document, serving

HERE = Path(__file__).parent
REFERENCE = HERE.parents[2] / "shared" / "reference"
NOMADS: Final = frozenset(tuple(line.split(".")) for line in (HERE / "durations.txt").read_text().split())
"""(Type, field) of each duration of Nomad's API types."""
ALWAYS: Final = {field for _, field in NOMADS} - {"Min", "Max", "Delay", "Wait"}
"""Names that are a duration whatever the type; the others name counts and words elsewhere."""
NANOSECONDS, TEXT = 5_400_000_000_000, "1h30m"


class Field(NamedTuple):
    """A field that a request may carry: the body's class, the keys and list places to it, its class and its type."""

    body: type
    path: tuple[str, ...]
    owner: type
    hint: Any

    @property
    def is_duration(self) -> bool:
        """By our type, or by Nomad's."""
        name = self.path[-1]
        is_nomads = (self.owner.__name__, name) in NOMADS or name in ALWAYS
        return Duration in (self.hint, *typing.get_args(self.hint)) or is_nomads

    def document(self, value: Any) -> Any:
        """The smallest body with this value at the path."""
        for key in reversed(self.path):
            value = {"[]": lambda v: [v], "{}": lambda v: {"x": v}}.get(key, lambda v, key=key: {key: v})(value)
        return value

    def __str__(self) -> str:
        return f"{self.body.__name__}.{'.'.join(self.path)}"


def _bodies() -> set[type]:
    """The classes that handlers name in `call.body(X)` and `decode_value(document, X)`, and the job."""
    found: set[type] = {Job}
    package = Path(yurt.http.__file__).parent
    for root in (package, package.parent / "api"):
        for source in root.rglob("*.py"):
            text = source.read_text()
            if "call.body(" in text or "decode_value(" in text:
                name = ".".join(source.relative_to(package.parents[1]).with_suffix("").parts)
                found |= {getattr(importlib.import_module(name), each) for each in _named(ast.parse(text))}
    return found


def _named(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            door = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            place = {"body": 0, "decode_value": 1}.get(door)
            if place is not None and isinstance(node.args[place], ast.Name) and node.args[place].id[0].isupper():
                yield node.args[place].id


def _fields(body: type, cls: type, path: tuple[str, ...] = ()) -> Iterator[Field]:
    hints = typing.get_type_hints(cls)
    for field in msgspec.structs.fields(cls):
        hint, at = hints[field.name], (*path, field.encode_name)
        yield Field(body, at, cls, hint)
        for inner, steps in _structs(hint):
            if inner is not cls:
                yield from _fields(body, inner, (*at, *steps))


def _structs(hint: Any, steps: tuple[str, ...] = ()) -> Iterator[tuple[type, tuple[str, ...]]]:
    """The structs that a type holds, and the steps to them: `[]` into a list, `{}` into a map."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint, steps
    elif origin in (typing.Union, types.UnionType):
        for each in args:
            yield from _structs(each, steps)
    elif origin is tuple:
        yield from _structs(args[0], (*steps, "[]"))
    elif args:
        yield from _structs(args[-1], (*steps, "{}"))


DURATIONS: Final = sorted((field for body in _bodies() for field in _fields(body, body) if field.is_duration), key=str)


def test_the_walk_finds_the_durations_of_jobs_and_of_every_other_resource() -> None:
    owners = {field.owner.__name__ for field in DURATIONS}

    assert {"Task", "UpdateStrategy", "DrainSpec", "TokenBody", "AutopilotConfiguration", "LockBody"} <= owners
    ours_too = {(field.owner.__name__, field.path[-1]) for field in DURATIONS}
    assert {("NodePool", "NodeIdentityTTL"), ("AllocKeepBody", "Duration"), ("IntroductionBody", "TTL")} <= ours_too


@pytest.mark.parametrize("field", DURATIONS, ids=str)
def test_a_duration_is_accepted_as_a_number_and_as_text(field: Field) -> None:
    is_list = typing.get_origin(field.hint) is tuple
    given = [[value] if is_list else value for value in (NANOSECONDS, TEXT)]

    number, text = (decode_value(field.document(value), field.body, name="Body")[0] for value in given)
    exponent = decode_value(field.document([5.4e12] if is_list else 5.4e12), field.body, name="Body")[0]
    absent = decode_value(field.document(None), field.body, name="Body")[0]
    unset = decode_value(field.document([] if is_list else ""), field.body, name="Body")[0]

    assert number == text == exponent
    assert number != absent
    assert unset == absent


@pytest.mark.parametrize("field", DURATIONS, ids=str)
def test_a_text_that_is_no_duration_is_refused_with_its_path(field: Field) -> None:
    value = ["soon"] if typing.get_origin(field.hint) is tuple else "soon"
    place = ".".join(("Body", *field.path)).replace(".[]", "[0]").replace(".{}", "[x]")

    with pytest.raises(Exception, match='"soon" is not a valid duration; use a number and a unit') as refused:
        decode_value(field.document(value), field.body, name="Body")

    assert str(refused.value).startswith(place)


JOB: Final = job_document(
    Type="service", Update={"MinHealthyTime": "2s", "HealthyDeadline": "1h", "ProgressDeadline": "2h"}
)
METHOD: Final = {
    "Name": "ci", "Type": "OIDC", "TokenLocality": "local",
    "Config": {"OIDCDiscoveryURL": "https://id", "OIDCClientID": "c", "OIDCClientSecret": "hush",
               "AllowedRedirectURIs": ["https://yurt/ui"]},
}  # fmt: skip
ROUND_TRIPS: Final = [
    ("/v1/jobs", {"Job": JOB}, "Job: TaskGroups 0 Tasks 0 KillTimeout", "/v1/job/web", NANOSECONDS),
    ("/v1/jobs", {"Job": JOB}, "Job: TaskGroups 0 ShutdownDelay", "/v1/job/web", NANOSECONDS),
    ("/v1/jobs", {"Job": JOB}, "Job: Update Stagger", "/v1/job/web", NANOSECONDS),
    (f"/v1/node/{NODE_ID}/drain", {"DrainSpec": {}}, "DrainSpec Deadline: DrainStrategy Deadline",
     f"/v1/node/{NODE_ID}", NANOSECONDS),
    ("/v1/node/pools", {"Name": "p"}, "NodeIdentityTTL", "/v1/node/pool/p", "1h30m0s"),
    ("/v1/acl/token", {"Type": "management"}, "ExpirationTTL", "", "1h30m0s"),
    ("/v1/acl/auth-method", METHOD, "MaxTokenTTL", "", "1h30m0s"),
    ("/v1/acl/auth-method", METHOD | {"MaxTokenTTL": "1h"}, "Config ClockSkewLeeway", "", "1h30m0s"),
    ("/v1/operator/autopilot/configuration", {"CleanupDeadServers": True}, "ServerStabilizationTime",
     "/v1/operator/autopilot/configuration", "1h30m0s"),
    ("/v1/var/v?lock-acquire", {"Path": "v", "Items": {"k": "v"}}, "Lock TTL", "/v1/var/v", "1h30m0s"),
    ("/v1/var/v?lock-acquire", {"Path": "v", "Items": {"k": "v"}}, "Lock LockDelay", "/v1/var/v", "1h30m0s"),
]  # fmt: skip
"""Path to write to, its body, place of the duration, path to read (or the answer), and what is written.

Two places are those in request and answer; "Job:" is a place below `Job` in the request alone.
"""


@pytest.mark.parametrize("given", [NANOSECONDS, TEXT])
@pytest.mark.parametrize(("path", "body", "place", "read", "written"), ROUND_TRIPS)
async def test_a_route_takes_both_and_writes_what_nomad_writes(
    path: str, body: dict[str, Any], place: str, read: str, written: object, given: object
) -> None:
    asked, _, shown_at = place.partition(": ")
    asked = f"Job {shown_at}" if asked == "Job" else asked
    is_acl = path.startswith("/v1/acl")
    async with serving(acl=AclConfig(enabled=is_acl)) as api:
        await add_ready_node(api)
        token = (await api.put("/v1/acl/bootstrap")).json["SecretID"] if is_acl else ""
        headers = {"X-Nomad-Token": token}
        if path.endswith("/drain"):  # a node without allocations would be drained at once
            await api.register()
            await api.wait_until("/v1/job/web/allocations", len)

        answer = await api.call("PUT", path, _with(body, asked.split(), given), headers=headers)
        shown = await api.get(read, headers=headers) if read else answer

    assert (answer.status, _at(shown.json, (shown_at or asked).split())) == (200, written), answer.text


def _with(document: Any, keys: list[str], value: object) -> Any:
    """A copy of the document with the value at these keys; objects on the way are made."""
    if not keys:
        return value
    if isinstance(document, list):
        return [_with(document[0], keys[1:], value), *document[1:]]
    return document | {keys[0]: _with(document.get(keys[0], {}), keys[1:], value)}


def _at(document: Any, keys: list[str]) -> Any:
    for key in keys:
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference in ../shared beside the checkout")
def test_the_durations_are_those_of_the_reference() -> None:
    kinds = json.loads((REFERENCE / "api-types.json").read_text())
    fields = {(kind["type"], field["f"]) for kind in kinds for field in kind.get("fields", ()) if _is_span(field["t"])}

    assert fields == NOMADS


def _is_span(kind: str) -> bool:
    return kind.lstrip("*") == "time.Duration"
