"""`yurt node pool apply`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch
from yurt.cli.suggest import did_you_mean
from yurt.cli.terminal.text import parse_duration

Json = dict[str, Any]

_KEYS = {
    "description": "Description", "meta": "Meta", "node_identity_ttl": "NodeIdentityTTL",
    "scheduler_config": "SchedulerConfiguration",
}  # fmt: skip
_SCHEDULER = {
    "scheduler_algorithm": "SchedulerAlgorithm", "memory_oversubscription_enabled": "MemoryOversubscriptionEnabled",
}  # fmt: skip


def run(call: Invocation) -> int:
    """Make or change the node pool of a file."""
    pool = read_pool(call.args[0], is_json=call.flags.is_on("json"))
    call.api.put("/v1/node/pools", pool)
    call.screen.line(f'Successfully applied node pool "{pool["Name"]}"!')
    return 0


def read_pool(path: str, *, is_json: bool) -> Json:
    """A node pool from a file in HCL or JSON; `-` is standard input."""
    try:
        source = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path}: cannot be read: {error}") from None
    if not is_json and not path.endswith(".json"):
        return _from_hcl(path, source)
    try:
        data = json.loads(source)
    except ValueError as error:
        raise CliError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(data, dict) or not data.get("Name"):
        raise CliError(f'{path}: a node pool is an object with "Name"')
    return data


def _from_hcl(path: str, source: str) -> Json:
    from yurt_jobspec import JobspecError, parse_body

    from yurt.cli.files.jobfile import rendered

    try:
        body = parse_body(source, filename=path)
    except JobspecError as error:
        raise CliError(rendered(error, {path: source})) from None
    pools = _one(body.get("node_pool"))
    if set(body) != {"node_pool"} or len(pools) != 1:
        raise CliError(f'{path}: a file holds one node pool: node_pool "<name>" {{ ... }}')
    (name, found), *_ = pools.items()
    pool: Json = {"Name": name}
    for key, value in _one(found).items():
        if key not in _KEYS:
            raise CliError(f'{path}: unknown key "{key}" in the node pool{did_you_mean(key, _KEYS)}')
        pool[_KEYS[key]] = value
    if "Meta" in pool:
        pool["Meta"] = dict(_one(pool["Meta"]))
    if "NodeIdentityTTL" in pool:
        pool["NodeIdentityTTL"] = _duration(path, pool["NodeIdentityTTL"])
    if "SchedulerConfiguration" in pool:
        pool["SchedulerConfiguration"] = _scheduler(path, _one(pool["SchedulerConfiguration"]))
    return pool


def _scheduler(path: str, block: Mapping[str, Any]) -> Json:
    unknown = next((key for key in block if key not in _SCHEDULER), None)
    if unknown is not None:
        raise CliError(f'{path}: unknown key "{unknown}" in scheduler_config{did_you_mean(unknown, _SCHEDULER)}')
    return {_SCHEDULER[key]: value for key, value in block.items()}


def _duration(path: str, value: Any) -> int:
    try:
        return parse_duration(str(value))
    except ValueError as error:
        raise CliError(f"{path}: node_identity_ttl: {error}") from None


def _one(value: Any) -> Mapping[str, Any]:
    """A block, given as a mapping or as a list of one."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, Mapping) else {}


COMMAND = Command(
    "node pool apply",
    "Make or change a node pool from a file in HCL or JSON.",
    run,
    (switch("json", "The file is JSON."),),
    (1, 1),
    "<input>",
    "one argument: <input>",
    details="See `yurt node pool init` for an example.",
)
