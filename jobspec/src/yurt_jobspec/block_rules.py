"""Rules of single blocks that the table of fields cannot express.

Each rule gets the decoded block and may change it before anybody else sees it; what it finds wrong goes to the
decoder. Short forms of constraints turn into operators here, ports are sorted into reserved and dynamic ones, and the
few defaults that belong to the file format rather than to the API are filled in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .diagnostics import OffsetDiagnostic
from .syntax.nodes import BlockNode

if TYPE_CHECKING:
    from .decode import Decoder
    from .schema import ApiObject

_OPERATORS = ("regexp", "version", "semver", "set_contains", "set_contains_any", "set_contains_all")
TEMPLATE_DEFAULTS = {"ChangeMode": "restart", "Splay": 5 * 10**9, "Perms": "0644", "ErrMissingKey": False}
_CHANGE_SCRIPT_DEFAULTS: ApiObject = {
    "Args": [],
    "Timeout": 5 * 10**9,
    "FailOnError": False,
    "RunOnFirstRender": False,
}
_VAULT_DEFAULTS = {"Env": True, "DisableFile": False, "ChangeMode": "restart"}
_SCALING_TYPES = {"cpu": "vertical_cpu", "mem": "vertical_mem"}


def apply(decoder: Decoder, name: str, result: ApiObject, block: BlockNode) -> None:
    """Apply the rule of the block's table, if it has one."""
    rule = _RULES.get(name)
    if rule is not None:
        rule(decoder, result, block)


def _constraint(decoder: Decoder, result: ApiObject, block: BlockNode) -> None:
    _short_operators(result)
    distinct_hosts = result.pop("-distinct_hosts", None)
    distinct_property = result.pop("-distinct_property", None)
    if distinct_property is not None:
        result.update(Operand="distinct_property", LTarget=distinct_property)
    if distinct_hosts is not None:
        result.update(Operand="distinct_hosts", RTarget="true" if distinct_hosts else "false")
    for operator in ("is_set", "is_not_set"):
        if result.pop(f"-{operator}", None) and not result["Operand"]:
            _warn_of_presence(decoder, operator, block)
    result["Operand"] = result["Operand"] or "="


def _warn_of_presence(decoder: Decoder, operator: str, block: BlockNode) -> None:
    """Warn of `is_set = true`: the format drops it, so that the constraint compares with `value`."""
    found = next((each for each in block.body.attributes if each.name == operator), None)
    start, end = (found.start, found.end) if found is not None else (block.start, block.name_end)
    detail = f"{operator} is not a short form: the constraint compares the attribute with `value`, or with nothing."
    decoder.findings.add(
        decoder.source,
        OffsetDiagnostic(f"{operator} has no effect", detail, start, end, f'operator = "{operator}"'),
        "warning",
    )


def _short_operators(result: ApiObject) -> None:
    for operator in _OPERATORS:
        value = result.pop(f"-{operator}", None)
        if value is not None:
            result.update(Operand=operator, RTarget=value)


def _affinity(decoder: Decoder, result: ApiObject, block: BlockNode) -> None:
    _short_operators(result)
    result["Operand"] = result["Operand"] or "="


def _device(decoder: Decoder, result: ApiObject, block: BlockNode) -> None:
    if result.get("Count") == "all":
        result.update(Count=1, AllOfNode=True)
    ids = result.pop("-ids", None)
    if ids:
        pinned = {"LTarget": "${device.ids}", "RTarget": ",".join(ids), "Operand": "set_contains_any"}
        result["Constraints"] = [*(result.get("Constraints") or ()), pinned]


def _network(decoder: Decoder, result: ApiObject, block: BlockNode) -> None:
    reserved: list[Any] = result.pop("ReservedPorts", [])
    dynamic: list[Any] = []
    for port in result.pop("DynamicPorts", []):
        (reserved if port["Value"] else dynamic).append(port)
    if reserved:
        result["ReservedPorts"] = reserved
    if dynamic:
        result["DynamicPorts"] = dynamic


def _defaults(defaults: ApiObject) -> Any:
    def fill(decoder: Decoder, result: ApiObject, block: BlockNode) -> None:
        for field, value in defaults.items():
            result.setdefault(field, list(value) if isinstance(value, list) else value)

    return fill


def _periodic(decoder: Decoder, result: ApiObject, block: BlockNode) -> None:
    result["SpecType"] = "cron"


def _group(decoder: Decoder, result: ApiObject, block: BlockNode) -> None:
    scaling = result.get("Scaling")
    if scaling is None:
        return
    if scaling["Type"] not in ("", "horizontal"):
        node = next(
            item
            for inner in block.body.blocks
            if inner.type == "scaling"
            for item in inner.body.attributes
            if item.name == "type"
        ).value
        detail = f'task group scaling policy had invalid type: "{scaling["Type"]}"'
        decoder.report(
            "Invalid group scaling type",
            detail,
            node.start,
            node.end,
            hint='Only "horizontal" scaling is known for groups.',
        )
    scaling["Type"] = scaling["Type"] or "horizontal"


def _task(decoder: Decoder, result: ApiObject, block: BlockNode) -> None:
    identities: list[Any] = result.pop("Identities", [])
    named: list[Any] = []
    for identity in identities:
        if identity["Name"] in ("", "default"):
            result["Identity"] = identity
        else:
            named.append(identity)
    if identities:
        result["Identities"] = named
    policies = result.get("ScalingPolicies")
    if policies:
        _task_scaling(
            decoder, policies, [inner for inner in block.body.blocks if inner.type == "scaling" and inner.labels]
        )


def _task_scaling(decoder: Decoder, policies: list[ApiObject], blocks: list[BlockNode]) -> None:
    seen: set[str] = set()
    for policy, block in zip(policies, blocks, strict=False):
        label = block.labels[0]
        required_type = _SCALING_TYPES.get(label.text)
        policy.pop("-name", None)
        if required_type is None:
            detail = 'scaling policy name must be "cpu" or "mem"'
            decoder.report("Invalid scaling policy name", detail, label.start, label.end)
        elif label.text in seen:
            detail = f"Only one scaling {label.text} block is allowed."
            decoder.report(f'Duplicate scaling "{label.text}" block', detail, block.start, label.end)
        elif policy["Type"] not in ("", required_type):
            detail = f'Invalid policy type, expected "{required_type}" but found "{policy["Type"]}"'
            decoder.report("Invalid scaling policy type", detail, block.start, label.end)
        seen.add(label.text)
        policy["Type"] = policy["Type"] or required_type


_RULES = {
    "Constraint": _constraint,
    "Affinity": _affinity,
    "NetworkResource": _network,
    "RequestedDevice": _device,
    "Template": _defaults(TEMPLATE_DEFAULTS),
    "ChangeScript": _defaults(_CHANGE_SCRIPT_DEFAULTS),
    "Vault": _defaults(_VAULT_DEFAULTS),
    "PeriodicConfig": _periodic,
    "TaskGroup": _group,
    "Task": _task,
}
