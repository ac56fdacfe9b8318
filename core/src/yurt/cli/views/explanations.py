"""Prints the answers of Yurt's explanation routes: obstacles by node, and the smallest change that would place a group.

An agent that does not know the routes (Nomad) shows nothing more.
"""

from __future__ import annotations

from yurt.cli.declaration import Invocation
from yurt.cli.errors import ApiError
from yurt.cli.json_object import Json
from yurt.cli.terminal.screen import columns
from yurt.cli.terminal.text import plural

_AMOUNTS = ("cpu", "memory", "disk", "cores", "numa")
WHY_NOT = "/v1/yurt/job/why-not"


def hint_of(evaluation: Json) -> str:
    """The command that explains an evaluation with failed placements."""
    from yurt.api.commands import why_not_hint

    return why_not_hint(evaluation.get("Namespace") or "default", evaluation["JobID"])


def explained(call: Invocation, evaluation: Json) -> Json:
    """The present explanation of an evaluation's job; empty when unavailable."""
    body = {"JobID": evaluation["JobID"], "Namespace": evaluation.get("Namespace") or "default"}
    return ask_why_not(call, body) or {}


def blockers_of(explanation: Json) -> list[str]:
    """The blockers of each group without capacity, one line each."""
    groups = explanation.get("Groups") or ()
    return [_blocked_by(group) for group in groups if lacks_capacity(group) and group.get("Blockers")]


def lacks_capacity(group: Json) -> bool:
    """Whether some of a group are not placed, or no node may run a system job's group."""
    return bool(group.get("Unplaced") or group.get("RunsNowhere"))


def nowhere_text(explanation: Json | None) -> str:
    """`there is no node that group "web" may run on`, for a system job, whose evaluation does not say so."""
    groups = (explanation or {}).get("Groups") or ()
    names = [f'"{group["Name"]}"' for group in groups if group.get("RunsNowhere")]
    return (
        f"there is no node that {'group' if len(names) == 1 else 'groups'} {' and '.join(names)} may run on"
        if names
        else ""
    )


def is_of_every_node(job_type: str | None) -> bool:
    """Whether jobs of the type run on every node that can have them."""
    return job_type in ("system", "sysbatch")


def _blocked_by(group: Json) -> str:
    """`Group "web" is blocked by: not in datacenter dc9 (3 nodes, nothing else on 2), not enough memory (1 node)`."""
    found = []
    for blocker in group["Blockers"]:
        alone = blocker.get("Alone") or 0
        note = f", nothing else on {alone}" if alone else ""
        found.append(f"{_blocker_text(blocker)} ({plural(blocker['Nodes'], 'node')}{note})")
    return f'Group "{group["Name"]}" is blocked by: {", ".join(found)}'


def ask_why_not(call: Invocation, body: Json, *, namespace: str | None = None) -> Json | None:
    """The explanation of a job, or None when unavailable."""
    try:
        found: Json | None = call.api.put(WHY_NOT, body, {"namespace": namespace})
    except ApiError:
        return None
    return found


def show_near_misses(call: Invocation, explanation: Json | None) -> None:
    """Notes, blockers, nearest nodes and the smallest change of each group without capacity."""
    for group in (explanation or {}).get("Groups") or ():
        if not lacks_capacity(group):
            continue
        if group.get("Notes"):
            call.screen.line(f'\nGroup "{group["Name"]}":')
            call.screen.line("\n".join(note_lines(group)))
        if group.get("Blockers"):
            call.screen.line(f'\nGroup "{group["Name"]}" is now blocked by:')
            call.screen.line("\n".join(blocker_lines(group)))
        if group.get("NearMisses") or group.get("SmallestChange"):
            call.screen.line(f'\nNearest nodes for group "{group["Name"]}" now:')
            call.screen.line("\n".join([*near_miss_lines(group), *change_lines(group)]))


def show_group(call: Invocation, group: Json) -> None:
    """Show the explanation of one group."""
    screen = call.screen
    screen.title(f'Task Group "{group["Name"]}"')
    screen.line(_counts(group))
    if group.get("Notes"):
        screen.line("\n".join(note_lines(group)))
    if group.get("Blockers"):
        screen.line("\nBlocked by:")
        screen.line("\n".join(blocker_lines(group)))
        if group.get("NearMisses"):
            screen.line("\nNearest nodes:")
            screen.line("\n".join(near_miss_lines(group)))
        screen.line("\n".join(change_lines(group)))
    if group.get("Scores"):
        screen.line("\nScores of the first placement:")
        screen.line("\n".join(score_lines(group["Scores"])))


def _counts(group: Json) -> str:
    if group.get("RunsNowhere"):
        return "There is no node that it may run on"
    parts = [f"{group.get('Desired') or 0} wanted"]
    for key, text in (("Running", "there already"), ("Placed", "can be placed"), ("Unplaced", "cannot be placed")):
        if group.get(key):
            parts.append(f"{group[key]} {text}")
    return ", ".join(parts)


def note_lines(group: Json) -> list[str]:
    """Further notes."""
    return [f"  * {note}" for note in group.get("Notes") or ()]


def blocker_lines(group: Json) -> list[str]:
    """Every blocker with its number of nodes."""
    rows = []
    for blocker in group.get("Blockers") or ():
        alone = blocker.get("Alone") or 0
        note = f"(nothing else on {alone})" if alone else ""
        rows.append([plural(blocker["Nodes"], "node"), _blocker_text(blocker), note])
    return _indented(rows)


def _blocker_text(blocker: Json) -> str:
    return f"not enough {blocker['Text']}" if blocker["Kind"] in _AMOUNTS else str(blocker["Text"])


def near_miss_lines(group: Json) -> list[str]:
    """`node-7: 512 MB memory short; driver "docker" is missing`."""
    return [
        f"  {miss.get('NodeName') or miss['NodeID'][:8]}: " + "; ".join(s["Text"] for s in miss.get("Shortfalls") or ())
        for miss in group.get("NearMisses") or ()
    ]


def change_lines(group: Json) -> list[str]:
    """The smallest change, or a line that there is none."""
    change = group.get("SmallestChange")
    if not change and any(blocker["Kind"] == "quota" for blocker in group.get("Blockers") or ()):
        return ["The quota has to be raised, or some of it freed."]
    if not change:
        return ["No change of the job would place one more: what it lacks has to be added, freed or repaired."]
    node = change.get("NodeName") or change["NodeID"][:8]
    on_node = f"on {node}; " if node else ""
    places = change.get("Places") or 0
    left = (group.get("Unplaced") or 0) - places
    effect = "makes room for one more, with which none is placed yet"
    if places:
        effect = f"places {plural(places, 'more allocation')}"
    if places and left > 0:
        effect += f", {left} still {'finds' if left == 1 else 'find'} no room"
    if places and not change.get("IsProved"):
        effect += "; perhaps not the smallest, for not all that is smaller could be tried"
    return [f"Smallest change: {change['Text']}", f"  ({on_node}{effect})"]


def score_lines(scores: list[Json]) -> list[str]:
    """The chosen node and the next best, part by part."""
    names = sorted({name for score in scores for name in score.get("Scores") or {}})
    rows = [["", "Node", *names, "Final"]]
    for score in scores:
        parts = score.get("Scores") or {}
        mark = "*" if score.get("Chosen") else ""
        values = [f"{parts[name]:.3g}" if name in parts else "-" for name in names]
        name = score.get("NodeName") or score["NodeID"][:8]
        rows.append([mark, name, *values, f"{score.get('NormScore') or 0:.3g}"])
    return _indented(rows)


def _indented(rows: list[list[str]]) -> list[str]:
    return ["  " + line for line in columns(rows).splitlines()] if rows else []
