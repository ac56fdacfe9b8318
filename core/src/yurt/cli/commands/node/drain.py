"""`yurt node drain` and `yurt node eligibility`: whether a node gets allocations."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text, texts
from yurt.cli.json_object import Json
from yurt.cli.terminal.confirm import confirm
from yurt.cli.terminal.text import clock, parse_duration

DEFAULT_DEADLINE = "1h"
FORCE_NS = -1
WAIT_S = 1.0


def drain_node(call: Invocation) -> int:
    """Begin, end or follow a drain."""
    from yurt.cli.api.choose import chosen_node

    flags = call.flags
    modes = [flags.is_on(name) for name in ("enable", "disable", "monitor")]
    if flags.is_on("enable") and flags.is_on("disable"):
        raise UsageError("-enable and -disable contradict each other; leave out one of the two")
    if sum(modes) == 0:
        raise UsageError("Either the '-enable', '-disable' or '-monitor' flag must be set")
    node = chosen_node(call)
    if flags.is_on("disable"):
        _disable(call, node)
        return 0
    if flags.is_on("enable"):
        spec = drain_spec(call)
        question = f'Are you sure you want to enable drain mode for node "{node["ID"]}"?'
        is_exact = flags.is_on("self") or node["ID"] == call.args[0]
        if not flags.is_on("yes") and not is_exact and not confirm(question):
            call.screen.line("Canceling drain toggle")
            return 0
        _enable(call, node, spec)
        if flags.is_on("detach"):
            return 0
    elif call.api.get(api_path("node", node["ID"])).get("DrainStrategy") is None:
        call.screen.line(f"{clock()}: No drain strategy set for node {node['ID']}")
        return 0
    return follow_drain(call, node["ID"])


def drain_spec(call: Invocation) -> Json:
    """The drain that the flags describe; a deadline below 0 forces, 0 waits for ever."""
    flags = call.flags
    if flags.is_on("force") and (flags.is_on("no-deadline") or flags.text("deadline")):
        raise UsageError("-force cannot be combined with -deadline or -no-deadline")
    if flags.is_on("no-deadline") and flags.text("deadline"):
        raise UsageError("-deadline and -no-deadline cannot be combined")
    if flags.is_on("force"):
        deadline = FORCE_NS
    elif flags.is_on("no-deadline"):
        deadline = 0
    else:
        deadline = _duration(flags.text("deadline") or DEFAULT_DEADLINE)
    return {"Deadline": deadline, "IgnoreSystemJobs": flags.is_on("ignore-system")}


def _duration(raw_text: str) -> int:
    try:
        found = parse_duration(raw_text)
    except ValueError as error:
        raise UsageError(f"-deadline: {error}") from None
    if found <= 0:
        raise UsageError("A positive deadline is needed; use -force to stop everything at once")
    return found


def _pair(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals:
        raise UsageError(f'-meta needs key=value, not "{setting}"')
    return name, value


def _enable(call: Invocation, node: Json, spec: Json) -> None:
    meta = dict(_pair(item) for item in call.flags.texts("meta"))
    if call.flags.text("m"):
        meta["message"] = call.flags.text("m")
    body = {"NodeID": node["ID"], "DrainSpec": spec, "MarkEligible": False, "Meta": meta}
    call.api.put(api_path("node", node["ID"], "drain"), body)
    call.screen.line(f'Node "{node["ID"]}" drain strategy set')


def _disable(call: Invocation, node: Json) -> None:
    body = {"NodeID": node["ID"], "DrainSpec": None, "MarkEligible": not call.flags.is_on("keep-ineligible")}
    call.api.put(api_path("node", node["ID"], "drain"), body)
    call.screen.line(f'Node "{node["ID"]}" drain strategy unset')


def follow_drain(call: Invocation, node_id: str) -> int:
    """Print each change until the drain ends."""
    say = call.screen.line
    say(f"{clock()}: Ctrl-C to stop monitoring: will not cancel the node drain")
    seen: dict[str, str] = {}
    index = 0
    while True:
        answer = call.api.read(api_path("node", node_id, "allocations"), index=index, wait_s=WAIT_S)
        index = answer.index
        allocs: list[Json] = answer.data or []
        _print_changes(call, allocs, seen)
        node: Json = call.api.get(api_path("node", node_id))
        if node.get("DrainStrategy") is None:
            say(f"{clock()}: Drain complete for node {node_id}")
            if all(alloc["ClientStatus"] not in ("pending", "running") for alloc in allocs if not _is_system(alloc)):
                say(f'{clock()}: All allocations on node "{node_id}" have stopped')
                return 0
            if not _is_draining(allocs):
                return 0


def _print_changes(call: Invocation, allocs: list[Json], seen: dict[str, str]) -> None:
    for alloc in allocs:
        migrates = bool((alloc.get("DesiredTransition") or {}).get("Migrate"))
        before, now = seen.get(alloc["ID"]), f"{alloc['ClientStatus']}{' migrating' if migrates else ''}"
        seen[alloc["ID"]] = now
        if before is None or before == now:
            if before is None and migrates and alloc["ClientStatus"] == "running":
                call.screen.line(f'{clock()}: Alloc "{alloc["ID"]}" marked for migration')
            continue
        if "migrating" in now and "migrating" not in before:
            call.screen.line(f'{clock()}: Alloc "{alloc["ID"]}" marked for migration')
        if before.split()[0] != now.split(maxsplit=1)[0]:
            change = f"{before.split()[0]} -> {now.split(maxsplit=1)[0]}"
            call.screen.line(f'{clock()}: Alloc "{alloc["ID"]}" status {change}')


def _is_system(alloc: Json) -> bool:
    return ((alloc.get("Job") or {}).get("Type") or "") in ("system", "sysbatch")


def _is_draining(allocs: list[Json]) -> bool:
    """Whether an allocation that must stop has not ended yet."""
    return any(alloc["DesiredStatus"] != "run" and alloc["ClientStatus"] in ("running", "pending") for alloc in allocs)


def set_eligibility(call: Invocation) -> int:
    """Set whether the node is eligible for new allocations."""
    from yurt.cli.api.choose import chosen_node

    enable, disable = call.flags.is_on("enable"), call.flags.is_on("disable")
    if enable == disable:
        raise UsageError("Either the '-enable' or '-disable' flag must be set")
    node = chosen_node(call)
    word = "eligible" if enable else "ineligible"
    call.api.put(api_path("node", node["ID"], "eligibility"), {"NodeID": node["ID"], "Eligibility": word})
    call.screen.line(f'Node "{node["ID"]}" scheduling eligibility set: {word} for scheduling')
    return 0


COMMANDS = (
    CliCommand(
        "node drain",
        "Move all allocations away from a node, and place no new ones",
        drain_node,
        (
            switch("enable", "Start a drain."),
            switch("disable", "Stop the drain; the node gets new allocations again."),
            text("deadline", "Stop remaining allocations after this time (default 1h)."),
            switch("force", "Stop everything at once."),
            switch("no-deadline", "No deadline: wait until all allocations have moved."),
            switch("ignore-system", "Leave system jobs running."),
            switch("keep-ineligible", "With -disable: keep the node ineligible for new allocations."),
            switch("detach", "Return at once, instead of following the drain."),
            switch("monitor", "Follow a drain that is under way."),
            switch("self", "Use the node of the agent that this command talks to."),
            switch("yes", "Skip the confirmation."),
            text("m", "A message for those who ask why."),
            texts("meta", "key=value about the drain; may be repeated."),
        ),
        (0, 1),
        "<node>",
        "one argument: <node>",
        exclusive=(
            ("disable", "force"),
            ("disable", "deadline"),
            ("disable", "no-deadline"),
            ("disable", "ignore-system"),
        ),
    ),
    CliCommand(
        "node eligibility",
        "Allow or forbid new allocations on a node",
        set_eligibility,
        (
            switch("enable", "New allocations may be placed on the node."),
            switch("disable", "No new allocations are placed on the node."),
            switch("self", "Use the node of the agent that this command talks to."),
        ),
        (0, 1),
        "<node>",
        "one argument: <node>",
        details="Running allocations stay.",
    ),
)
