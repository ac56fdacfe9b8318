"""Quota specifications in HCL: the API's form of a file, and its errors with their positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Final

from yurt_jobspec import JobspecError
from yurt_jobspec.diagnostics import Near, OffsetDiagnostic, SourceText
from yurt_jobspec.documents import read_document
from yurt_jobspec.findings import Findings
from yurt_jobspec.syntax.jsonsyntax import JsonArray, JsonNode, JsonObject, JsonScalar
from yurt_jobspec.syntax.nodes import Label

from yurt.api.sizes import parse_mib
from yurt.cli.errors import CliError
from yurt.cli.json_object import Json
from yurt.sdk.value import Duration

_TEXT, _NUMBER, _SIZE, _WEIGHT, _TIME = "text", "number", "size", "weight", "time"
_AMOUNTS: Final[Mapping[str, tuple[str, str]]] = {
    "cpu": ("CPU", _NUMBER),
    "cores": ("Cores", _NUMBER),
    "memory": ("MemoryMB", _SIZE),
    "memory_max": ("MemoryMaxMB", _SIZE),
    "secrets": ("SecretsMB", _SIZE),
}
_SPEC: Final = {
    "name": ("Name", _TEXT), "description": ("Description", _TEXT), "parent": ("Parent", _TEXT),
    "weight": ("Weight", _WEIGHT), "protection": ("Protection", _TIME),
}  # fmt: skip
_BLOCKS: Final = ("device", "storage", "node_pool")
_LENT: Final = ("device", "node_pool")
_STORAGE: Final = {"variables": ("VariablesMB", _SIZE), "host_volumes": ("HostVolumesMB", _SIZE)}


def read_quota(filename: str, text: str) -> Json:
    """The quota of a file in HCL; raises CliError with all findings."""
    from yurt.cli.files.jobfile import rendered

    source, findings = SourceText(filename, text), Findings()
    try:
        spec = _QuotaReader(source, findings).spec(read_document(source))
        findings.raise_errors(by_place=True)
    except JobspecError as error:
        raise CliError(rendered(error, {filename: text})) from None
    return spec


def placed_refusal(filename: str, text: str, message: str) -> CliError | None:
    """A server's findings about a file's place among other quotas, at their lines; None where one has no place."""
    from yurt.cli.files.jobfile import rendered

    lines = [line.removeprefix("\t* ").strip() for line in message.splitlines() if line.startswith("\t* ")]
    source, findings = SourceText(filename, text), Findings()
    try:
        places = dict(_places(read_document(source)))
        for line in lines:
            place = places.get(line.partition(":")[0])
            if place is None:
                return None
            detail = f"{line.partition(': ')[2]}."
            findings.add(source, OffsetDiagnostic("The quota does not fit the others", detail, place.start, place.end))
        findings.raise_errors(by_place=True)
    except JobspecError as error:
        return CliError(rendered(error, {filename: text}))
    return None


def _places(root: JsonObject) -> Iterator[tuple[str, Label]]:
    """The labels that a finding among quotas is about; a guarantee stands in a limit, or its lack there."""
    for label, value in root.members:
        yield label.text, label
        limits = value.items if isinstance(value, JsonArray) else (value,)
        for limit in limits if label.text == "limit" else ():
            yield "guaranteed", label
            yield from ((inner.text, inner) for inner, _ in (limit.members if isinstance(limit, JsonObject) else ()))


class _QuotaReader:
    """Reads one file; problems are added to the findings, and reading continues."""

    def __init__(self, source: SourceText, findings: Findings) -> None:
        self._source = source
        self._findings = findings

    def spec(self, root: JsonObject) -> Json:
        """The whole file."""
        spec = self._values(root, _SPEC, ("limit",))
        if not spec.get("Name"):
            self._add("Missing name", 'A quota needs a name: name = "team".', Label("", 0, 0))
        spec["Limits"] = [self._limit(block) for _, block in self._blocks(root, "limit")]
        if not spec["Limits"]:
            detail = 'A quota needs a limit: limit { region = "global" region_limit { ... } }.'
            self._add("Missing limit", detail, Label("", 0, 0))
        return spec

    def _limit(self, block: JsonObject) -> Json:
        names = {"region": ("Region", _TEXT), "variables_limit": ("VariablesLimit", _SIZE)}
        limit = self._values(block, names, ("region_limit", "guaranteed"))
        if not limit.get("Region"):
            self._add("Missing region", 'A limit names its region: region = "global".', block)
        found = [self._resources(content, is_pool=False) for _, content in self._once(block, "region_limit")]
        lent = [
            (at, self._resources(each, is_pool=False, blocks=_LENT)) for at, each in self._once(block, "guaranteed")
        ]
        read = {**limit, **({"RegionLimit": found[0]} if found else {}), **({"Guaranteed": lent[0][1]} if lent else {})}
        if lent:
            self._check_guarantee(read, lent[0][0])
        return read

    def _check_guarantee(self, limit: Json, at: Label) -> None:
        """Report mistakes of a guarantee relative to its limit, at the guarantee."""
        from yurt.api.decode import decode_value
        from yurt.rules.validation.quota import guarantee_problems
        from yurt.structs.quota import QuotaLimit

        for problem in guarantee_problems(decode_value(limit, QuotaLimit, name="Limit")[0]):
            self._add("Invalid guarantee", f"{problem.removeprefix('guaranteed: ')}.", at)

    def _resources(self, block: JsonObject, *, is_pool: bool, blocks: tuple[str, ...] = _BLOCKS) -> Json:
        blocks = ("device",) if is_pool else blocks
        resources = self._values(block, _AMOUNTS, blocks)
        resources["Devices"] = [self._device(label, content) for label, content in self._labelled(block, "device")]
        if is_pool:
            return resources
        for _, content in self._once(block, "storage"):
            resources["Storage"] = self._values(content, _STORAGE, ())
        resources["NodePools"] = [
            {"NodePool": label.text, **self._resources(content, is_pool=True)}
            for label, content in self._labelled(block, "node_pool")
        ]
        return resources

    def _device(self, label: Label, block: JsonObject) -> Json:
        return {"Name": label.text, "Count": 1, **self._values(block, {"count": ("Count", _NUMBER)}, ())}

    # Attributes.

    def _values(self, block: JsonObject, names: Mapping[str, tuple[str, str]], blocks: tuple[str, ...]) -> Json:
        """The attributes of a block by their names in the API."""
        found: Json = {}
        for name, value in block.members:
            if name.text in blocks:
                continue
            if name.text not in names:
                choices = (*names, *blocks)
                self._add("Unknown name", f'"{name.text}" is not expected here.', name, Near(name.text, choices))
                continue
            key, kind = names[name.text]
            if key in found:
                self._add("Attribute redefined", f'"{name.text}" may be set once in a block.', name)
                continue
            found[key] = self._value(name.text, value, kind)
        return found

    def _value(self, name: str, node: JsonNode, kind: str) -> str | int | float:
        value = node.value if isinstance(node, JsonScalar) else None
        if kind in (_WEIGHT, _TIME):
            return self._share(name, node, kind)
        if kind == _TEXT:
            if isinstance(value, str):
                return value
            self._add("Invalid value", f'"{name}" is a text: {name} = "...".', node)
            return ""
        if isinstance(value, Decimal) and value == int(value):
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        size = parse_mib(value) if kind == _SIZE and isinstance(value, str) else None
        if size is not None:
            return size
        expectation = 'a number of MiB, or a size such as "10 GiB"' if kind == _SIZE else "a whole number"
        self._add("Invalid value", f'"{name}" is {expectation}: 0 is no limit, -1 allows nothing.', node)
        return 0

    def _share(self, name: str, node: JsonNode, kind: str) -> float | int:
        """The weight or the protection, checked here so that a mistake shows its place."""
        from yurt.rules.validation.quota import share_problems
        from yurt.sdk.value import parse_duration
        from yurt.structs.quota import QuotaSpec

        value = node.value if isinstance(node, JsonScalar) else None
        found: float | int | None = None
        if kind == _WEIGHT and isinstance(value, int | Decimal) and not isinstance(value, bool):
            found = float(value)
        elif kind == _TIME and isinstance(value, str):
            with suppress(ValueError):
                found = parse_duration(value)
        if found is None:
            wanted = "a number such as 3 or 0.5" if kind == _WEIGHT else 'a time such as "10m"'
            self._add("Invalid value", f'"{name}" is {wanted}.', node)
            return 1
        spec = QuotaSpec(weight=float(found)) if kind == _WEIGHT else QuotaSpec(protection=Duration(int(found)))
        for problem in share_problems(spec):
            self._add("Invalid value", f'"{name}": {problem.partition(": ")[2]}.', node)
        return found

    # Blocks.

    def _once(self, block: JsonObject, name: str) -> Iterator[tuple[Label, JsonObject]]:
        for number, (label, content) in enumerate(self._blocks(block, name)):
            if number:
                self._add("Block repeated", f'"{name}" may stand once here.', label)
            else:
                yield label, content

    def _labelled(self, block: JsonObject, name: str) -> Iterator[tuple[Label, JsonObject]]:
        for at, group in self._blocks(block, name):
            is_labelled = bool(group.members) and all(self._is_of_objects(content) for _, content in group.members)
            if not is_labelled:
                self._add("Missing label", f'Write a label: {name} "..." {{ ... }}.', at)
                continue
            for label, content in group.members:
                yield from ((label, each) for each in self._objects(label, content))

    def _blocks(self, block: JsonObject, name: str) -> Iterator[tuple[Label, JsonObject]]:
        for label, value in block.members:
            if label.text == name:
                yield from ((label, each) for each in self._objects(label, value))

    def _objects(self, label: Label, value: JsonNode) -> Iterator[JsonObject]:
        if isinstance(value, JsonObject):
            yield value
        elif isinstance(value, JsonArray) and self._is_of_objects(value):
            yield from (item for item in value.items if isinstance(item, JsonObject))
        else:
            self._add("Invalid block", f'"{label.text}" is a block: {label.text} {{ ... }}.', label)

    def _is_of_objects(self, value: JsonNode) -> bool:
        return isinstance(value, JsonObject) or (
            isinstance(value, JsonArray) and all(isinstance(item, JsonObject) for item in value.items)
        )

    def _add(self, summary: str, detail: str, at: Label | JsonNode, near: Near | None = None) -> None:
        self._findings.add(self._source, OffsetDiagnostic(summary, detail, at.start, at.end, near))
