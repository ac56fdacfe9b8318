"""`yurt acl explain`: whether a token may do something, and by which rule."""

from __future__ import annotations

from yurt.cli.commands.acl.answers import explained, whole_id
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.flags import text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data

SELF = "self"
REFUSED = 2
"""The exit code for a request that is not allowed."""
_SCOPES = (("node-pool", "NodePool"), ("var", "Variable"), ("host-volume", "HostVolume"), ("node", "Node"))


@explained
def run(call: Invocation) -> int:
    """Ask the servers; 0 where it is allowed, 2 where it is not."""
    token, *words = call.args
    is_data = wants_data(call)
    body: Json = {"Action": " ".join(words)}
    if token != SELF:
        body["AccessorID"] = whole_id(call, token, "/v1/acl/tokens", "ACL token", key="AccessorID")
    # Without the flag the namespace is that of the request's path or of NOMAD_NAMESPACE, as for every request.
    if call.flags.text("namespace"):
        body["Namespace"] = call.flags.text("namespace")
    body |= {field: call.flags.text(flag) for flag, field in _SCOPES if call.flags.text(flag)}
    found: Json = call.api.put("/v1/yurt/acl/explain", body)
    code = 0 if found["Allowed"] else REFUSED
    if is_data:
        show_data(call, found)
        return code
    _show(call, found)
    return code


def _show(call: Invocation, found: Json) -> None:
    who = found["Token"]
    name = f' "{who["Name"]}"' if who["Name"] else ""
    places = {
        "Namespace": "namespace", "NodePool": "node pool", "Variable": "variable", "HostVolume": "host volume",
        "Node": "node",
    }  # fmt: skip
    where = [f"{word} {found['Scope'][key]}" for key, word in places.items() if found["Scope"].get(key)]
    call.screen.line("Allowed" if found["Allowed"] else "Not allowed")
    call.screen.line("")
    pairs = [
        ("Caller", f"{who['ResolvedBy']}{name}" + (f" ({who['AccessorID']})" if who["AccessorID"] else "")),
        ("Policies", ", ".join(who["Policies"]) or ("n/a" if who["Type"] == "management" else "<none>")),
        ("Route", found["Route"]),
        ("Needs", found["Need"]),
        ("Where", ", ".join(where)),
        ("Reason", found["Reason"]),
        ("Problem", who["Problem"] if who["Problem"] != found["Reason"] else ""),
        ("Note", found["Note"]),
    ]
    call.screen.pairs([(key, value) for key, value in pairs if value])


COMMANDS = (
    CliCommand(
        "acl explain",
        "Say whether a token may do something, and by which rule",
        run,
        (
            text("node-pool", "The node pool that the right is about."),
            text("var", "The path of the variable that the right is about."),
            text("host-volume", "The host volume that the right is about."),
            text("node", "The id of the node that the right is about."),
            *JSON_FLAGS,
        ),
        (2, -1),
        "<token> <action>",
        "two arguments: <token> <action>",
        details=(
            "The token is an accessor id, or a beginning of one, or self for the caller. The action is a request, such "
            "as PUT /v1/job/web/scale?namespace=prod, or a right in the words of the HTTP API's reference: submit-job, "
            "variables:write, node:read, operator:keyring-rotate, management. Nothing is carried out.\n\n"
            "A management token may query every token, others only themselves. "
            "The exit code is 0 where it is allowed, 2 where it is not, and 1 for errors."
        ),
    ),
)
