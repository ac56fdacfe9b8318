"""`-json` and `-t`: the answer of the API instead of a text.

In Go a template reads structs, and a field that a struct has not is an error; a key that a map has not is `<no
value>`. JSON knows only objects: those whose keys all begin with a capital letter count as structs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from yurt.cli.declaration import Invocation
from yurt.cli.errors import CliError

if TYPE_CHECKING:
    from yurt.gotemplate import ParsedTemplate

LEFT_OUT: Final[Mapping[str, object]] = {
    "AllocatedResources": None, "Allocations": None, "Attributes": None, "CSIPluginConfig": None, "Client": None,
    "Constraints": None, "ControllerInfo": None, "ExpirationTTL": "0s", "ExpirationTime": None, "HostData": None,
    "Lock": None, "Meta": None, "NodeInfo": None, "NodeResources": None, "OptimisticFailureTolerance": 0,
    "Parameters": None, "ReadReplicas": None, "RedundancyZones": None, "ReservedResources": None, "Scope": None,
    "Server": None, "Upgrade": None,
}  # fmt: skip
"""The fields that Nomad's API leaves out of an object when they are empty, and what a template reads then."""
FORMAT_CONFLICT = "Both json and template formatting are not allowed"


def wants_data(call: Invocation) -> bool:
    """Whether `-json` or `-t` was given; rejects both together and an invalid template before any request."""
    is_json, template = call.flags.is_on("json"), call.flags.text("t")
    if is_json and template:
        raise CliError(FORMAT_CONFLICT)
    if template:
        parsed(template)
    return is_json or bool(template)


def show_data(call: Invocation, value: Any) -> int:
    """Print the value as JSON or by the template; returns the exit code."""
    template = call.flags.text("t")
    if template:
        call.screen.line(rendered(template, value))
    else:
        call.screen.json(value)
    return 0


def rendered(text: str, value: Any) -> str:
    """The value rendered by the Go template."""
    from yurt.gotemplate import TemplateError

    try:
        return parsed(text).render(value, is_record=_is_struct, left_out=LEFT_OUT)
    except TemplateError as error:
        raise CliError(f"Error formatting the data: {error}") from None


def parsed(text: str) -> ParsedTemplate:
    """The Go template; raises CliError with the line and column of an error."""
    from yurt.gotemplate import TemplateError, TemplateFunction, parse

    try:
        return parse(text, name="format", functions={"json": TemplateFunction(_json, 1, 1)})
    except TemplateError as error:
        raise CliError(f"Error parsing the template: {error}") from None


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _is_struct(mapping: Mapping[str, object]) -> bool:
    return bool(mapping) and all(key[:1].isupper() for key in mapping)
