"""`yurt namespace`: show and change namespaces."""

from __future__ import annotations

import json
from pathlib import Path

from yurt.cli.api.lookup import api_path, read_named
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import parsed, rendered, show_data, wants_data

FILE_ENDINGS = (".hcl", ".json")
HTTP_FORBIDDEN, HTTP_NOT_FOUND = 403, 404


def apply_namespace(call: Invocation) -> int:
    """Make the namespace of a file, or the one with this name and the given description."""
    argument = call.args[0]
    if argument == "-" or "/" in argument or argument.endswith(FILE_ENDINGS) or Path(argument).is_file():
        space = read_namespace(argument, is_json=call.flags.is_on("json"))
    else:
        space = _existing(call, argument)
    for flag, key in (("description", "Description"), ("quota", "Quota")):
        if call.flags.is_given(flag):
            space[key] = call.flags.text(flag)
    call.api.put("/v1/namespace", space)
    call.screen.line(f'Successfully applied namespace "{space["Name"]}"!')
    return 0


def _existing(call: Invocation, name: str) -> Json:
    """The namespace as stored, so that fields without a flag keep their values."""
    found = call.api.get("/v1/namespaces", {"prefix": name}) or []
    return next((space for space in found if space["Name"] == name), {"Name": name})


def read_namespace(path: str, *, is_json: bool) -> Json:
    """A namespace from a file in HCL or JSON; `-` is standard input."""
    from yurt.cli.files.source import read_text

    source = read_text(path)
    if is_json or path.endswith(".json"):
        try:
            data = json.loads(source)
        except ValueError as error:
            raise CliError(f"{path}: not valid JSON: {error}") from None
        if not isinstance(data, dict) or not data.get("Name"):
            raise CliError(f'{path}: a namespace is an object with "Name"')
        return data
    from yurt.cli.files.namespacefile import read_namespace_hcl

    return read_namespace_hcl(path, source)


def delete_namespace(call: Invocation) -> int:
    """Delete it."""
    call.api.delete(api_path("namespace", call.args[0]))
    call.screen.line(f'Successfully deleted namespace "{call.args[0]}"!')
    return 0


def inspect_namespace(call: Invocation) -> int:
    """The namespace as the API gives it."""
    template = call.flags.text("t")
    if template:
        parsed(template)
    space = _namespace(call)
    if template:
        call.screen.line(rendered(template, space))
    else:
        call.screen.json(space)
    return 0


def _namespace(call: Invocation) -> Json:
    """The namespace that the argument names, or the only one that begins with it."""
    return read_named(
        call, call.args[0], lambda name: call.api.get(api_path("namespace", name)),
        listed_at="/v1/namespaces", things="namespaces",
    )  # fmt: skip


def list_namespaces(call: Invocation) -> int:
    """All namespaces."""
    is_json = wants_data(call)
    found = call.api.get("/v1/namespaces") or []
    if is_json:
        return show_data(call, found)
    if not found:
        # Each region has the namespace "default", so an empty list is what somebody without rights is shown.
        has_token = bool(call.api.connection.token)
        why = (
            "the token has no right in any namespace" if has_token else "no token was given; see -token and NOMAD_TOKEN"
        )
        call.screen.line(f"No namespaces to show: {why}")
        return 0
    rows = [[space["Name"], space.get("Description") or ""] for space in sorted(found, key=lambda each: each["Name"])]
    call.screen.table("Name|Description", rows)
    return 0


def show_namespace(call: Invocation) -> int:
    """One namespace."""
    is_json = wants_data(call)
    space = _namespace(call)
    if is_json:
        return show_data(call, space)
    rules: Json = space.get("Capabilities") or {}

    def listed(key: str, none: str) -> str:
        return ",".join(rules.get(key) or ()) or none

    call.screen.pairs(
        [
            ("Name", space["Name"]),
            ("Description", space.get("Description") or ""),
            ("Quota", space.get("Quota") or ""),
            ("Enabled Drivers", listed("EnabledTaskDrivers", "*")),
            ("Disabled Drivers", listed("DisabledTaskDrivers", "")),
            ("Enabled Network Modes", listed("EnabledNetworkModes", "*")),
            ("Disabled Network Modes", listed("DisabledNetworkModes", "")),
        ]
    )
    if space.get("Meta"):
        call.screen.title("Metadata")
        call.screen.pairs(sorted(space["Meta"].items()))
    _show_quota(call, space.get("Quota") or "")
    pools = space.get("NodePoolConfiguration") or {}
    if pools:
        call.screen.title("Node Pool Configuration")
        call.screen.pairs(
            [(key, ", ".join(value) if isinstance(value, list) else value) for key, value in pools.items()]
        )
    return 0


def _show_quota(call: Invocation, name: str) -> None:
    """The limits of the namespace's quota, for callers who may read quotas."""
    from yurt.cli.commands.quota import show_limits, usages_of
    from yurt.cli.errors import ApiError

    if not name:
        return
    try:
        spec: Json = call.api.get(api_path("quota", name))
    except ApiError as error:
        # A caller who may read the namespace need not be allowed to read quotas.
        if error.status not in (HTTP_FORBIDDEN, HTTP_NOT_FOUND):
            raise
        return
    show_limits(call, spec.get("Limits") or [], usages_of(call, spec)[0])


COMMANDS = (
    CliCommand(
        "namespace apply",
        "Create or update a namespace",
        apply_namespace,
        (
            text("description", "What the namespace is for."),
            text("quota", "The quota that binds it."),
            switch("json", "The file is JSON."),
        ),
        (1, 1),
        "<input>",
        "one argument: <input>",
        details="It is given by its name, or by a file in HCL or JSON.",
    ),
    CliCommand(
        "namespace delete",
        "Delete an empty namespace",
        delete_namespace,
        (),
        (1, 1),
        "<namespace>",
        "one argument: <namespace>",
    ),
    CliCommand(
        "namespace inspect",
        "Print a namespace as JSON",
        inspect_namespace,
        (text("t", "Format the answer with a Go template."),),
        (1, 1),
        "<namespace>",
        "one argument: <namespace>",
    ),
    CliCommand("namespace list", "List namespaces", list_namespaces, JSON_FLAGS),
    CliCommand(
        "namespace status",
        "Show a namespace",
        show_namespace,
        JSON_FLAGS,
        (1, 1),
        "<namespace>",
        "one argument: <namespace>",
    ),
)
