"""`yurt node pool`: show and change node pools."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from yurt.cli.api.lookup import api_path, read_named
from yurt.cli.api.paging import PAGE_FLAGS, page_query, show_next_page
from yurt.cli.declaration import JSON_FLAGS, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.suggest import did_you_mean
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import go_duration, parse_duration

T = TypeVar("T")
_KEYS = {
    "description": "Description", "meta": "Meta", "node_identity_ttl": "NodeIdentityTTL",
    "scheduler_config": "SchedulerConfiguration", "batch_queue": "BatchQueue", "idle": "Idle",
}  # fmt: skip
_SCHEDULER = {
    "scheduler_algorithm": "SchedulerAlgorithm", "memory_oversubscription_enabled": "MemoryOversubscriptionEnabled",
}  # fmt: skip


JSON = {"Name": "example", "Description": "Example node pool", "Meta": {"owner": "sysadmins"}}

HCL = """\
# A node pool: nodes join it with `node_pool = "example"` in their client configuration, jobs with `node_pool`.
node_pool "example" {
  description = "Example node pool"

  # Free values to tell pools apart by.
  meta {
    owner = "sysadmins"
  }

  # In which order batch jobs wait for the pool: fifo {}, dynamic_priority { ... } or fair_share { ... }.
  # batch_queue {
  #   fair_share {
  #     half_life = "7d"
  #   }
  # }

  # What becomes of jobs that hold devices and do not use them.
  # idle {
  #   window = "2h"
  #   action = "requeue"
  # }

  # What this pool does otherwise than the cluster's scheduler configuration says.
  # scheduler_config {
  #   scheduler_algorithm             = "spread"
  #   memory_oversubscription_enabled = true
  # }
}
"""


def apply_pool(call: Invocation) -> int:
    """Make or change the node pool of a file."""
    pool = read_pool(call.args[0], is_json=call.flags.is_on("json"))
    call.api.put("/v1/node/pools", pool)
    call.screen.line(f'Successfully applied node pool "{pool["Name"]}"!')
    return 0


def read_pool(path: str, *, is_json: bool) -> Json:
    """A node pool from a file in HCL or JSON; `-` is standard input."""
    from yurt.cli.files.source import read_text

    source = read_text(path)
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


def delete_pool(call: Invocation) -> int:
    """Delete it."""
    call.api.delete(api_path("node", "pool", call.args[0]))
    call.screen.line(f'Successfully deleted node pool "{call.args[0]}"!')
    return 0


def show_pool(call: Invocation) -> int:
    """One node pool."""
    is_json = wants_data(call)
    pool = _of_pool(call, lambda name: call.api.get(api_path("node", "pool", name)))
    if is_json:
        return show_data(call, pool)
    screen = call.screen
    facts = [("Name", pool["Name"]), ("Description", pool.get("Description") or "")]
    if ttl := pool.get("NodeIdentityTTL"):  # Nomad's servers write text, older ones a number
        facts.append(("Node Identity TTL", ttl if isinstance(ttl, str) else go_duration(ttl)))
    screen.pairs(facts)
    screen.title("Metadata")
    screen.pairs(sorted((pool.get("Meta") or {}).items())) if pool.get("Meta") else screen.line("No metadata")
    screen.title("Scheduler Configuration")
    config = pool.get("SchedulerConfiguration") or {}
    if not config:
        screen.line("No scheduler configuration")
        return 0
    screen.pairs(
        [
            ("Scheduler Algorithm", config.get("SchedulerAlgorithm") or ""),
            ("Memory Oversubscription", config.get("MemoryOversubscriptionEnabled")),
        ]
    )
    return 0


def _of_pool(call: Invocation, read: Callable[[str], T]) -> T:
    """What `read` gives for the pool that the argument names, or for the only one that begins with it."""
    return read_named(call, call.args[0], read, listed_at="/v1/node/pools", things="node pools")


def write_example(call: Invocation) -> int:
    """Write an example file."""
    from pathlib import Path

    form = call.flags.text("out")
    if form not in ("hcl", "json"):
        raise UsageError(f'-out must be hcl or json, not "{form}"')
    path = Path(call.args[0] if call.args else f"pool.nomad.{form}")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(HCL if form == "hcl" else json.dumps(JSON, indent=2) + "\n")
    except FileExistsError:
        raise CliError(f'File "{path}" already exists') from None
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror}") from None
    if not call.flags.is_on("quiet"):
        call.screen.line(f"Example node pool specification written to {path}")
    return 0


def list_pool_jobs(call: Invocation) -> int:
    """The jobs of a pool."""
    from yurt.cli.views.job import show_jobs

    is_data = wants_data(call)
    pool, answer = _of_pool(
        call, lambda name: (name, call.api.read(api_path("node", "pool", name, "jobs"), page_query(call)))
    )
    jobs: list[Json] = answer.data or []
    if is_data:
        return show_data(call, jobs)
    if not jobs:
        call.screen.line(f'No jobs in node pool "{pool}"')
        return 0
    show_jobs(call, jobs, with_namespace=call.api.namespace == "*")
    show_next_page(call, answer.next_token)
    return 0


def list_pools(call: Invocation) -> int:
    """All node pools."""
    is_json = wants_data(call)
    answer = call.api.read("/v1/node/pools", page_query(call))
    pools: list[Json] = answer.data or []
    if is_json:
        return show_data(call, pools)
    if not pools:
        call.screen.line("No node pools")
        return 0
    call.screen.table("Name|Description", [[pool["Name"], pool.get("Description") or ""] for pool in pools])
    show_next_page(call, answer.next_token)
    return 0


def list_pool_nodes(call: Invocation) -> int:
    """The nodes of a pool."""
    is_data = wants_data(call)
    pool, answer = _of_pool(
        call, lambda name: (name, call.api.read(api_path("node", "pool", name, "nodes"), page_query(call)))
    )
    nodes: list[Json] = answer.data or []
    if is_data:
        return show_data(call, nodes)
    if not nodes:
        call.screen.line(f'No nodes in node pool "{pool}"')
        return 0
    rows = [
        [
            call.short(node["ID"]), node["NodePool"], node["Datacenter"], node["Name"], node.get("NodeClass") or "",
            bool(node.get("Drain")), node["SchedulingEligibility"], node["Status"],
        ]
        for node in nodes
    ]  # fmt: skip
    call.screen.table("ID|Node Pool|DC|Name|Class|Drain|Eligibility|Status", rows)
    show_next_page(call, answer.next_token)
    return 0


COMMANDS = (
    CliCommand(
        "node pool apply",
        "Create or update a node pool from a file in HCL or JSON",
        apply_pool,
        (switch("json", "The file is JSON."),),
        (1, 1),
        "<input>",
        "one argument: <input>",
        details="See `yurt node pool init` for an example.",
    ),
    CliCommand(
        "node pool delete",
        "Delete a node pool that has no nodes and no live jobs",
        delete_pool,
        (),
        (1, 1),
        "<node-pool>",
        "one argument: <node-pool>",
    ),
    CliCommand(
        "node pool info", "Show a node pool", show_pool, JSON_FLAGS, (1, 1), "<node-pool>", "one argument: <node-pool>"
    ),
    CliCommand(
        "node pool init",
        "Write an example file of a node pool",
        write_example,
        (text("out", "The form: hcl or json.", default="hcl"), switch("quiet", "Print nothing.")),
        (0, 1),
        "[<filename>]",
        "at most one argument: <filename>",
        is_client=False,
    ),
    CliCommand(
        "node pool jobs",
        "List the jobs of a node pool",
        list_pool_jobs,
        (
            text("filter", "Only jobs that the expression matches."),
            *PAGE_FLAGS,
            *JSON_FLAGS,
        ),
        (1, 1),
        "<node-pool>",
        "one argument: <node-pool>",
    ),
    CliCommand(
        "node pool list",
        "List node pools",
        list_pools,
        (
            text("filter", "Only pools that the expression matches."),
            *PAGE_FLAGS,
            *JSON_FLAGS,
        ),
    ),
    CliCommand(
        "node pool nodes",
        "List the nodes of a node pool",
        list_pool_nodes,
        (
            text("filter", "Only nodes that the expression matches."),
            *PAGE_FLAGS,
            VERBOSE,
            *JSON_FLAGS,
        ),
        (1, 1),
        "<node-pool>",
        "one argument: <node-pool>",
    ),
)
