"""Collects what the servers store about an object whose history has no valid order, for its counterexample.

The records that servers make themselves (evaluations, deployments, versions) say what they did to the object between
requests, with the index of each change: a counterexample alone does not tell a lost change from a gap in the model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import aiohttp

from yurt.testing.histories.clients import Recorded, new_session
from yurt.testing.histories.counterexample import operation_lines

LISTED_MAX: Final = 500
"""Operations of an object that are listed; nobody reads more of them."""
NESTED_MAX: Final = 200
"""Characters of a nested value that is shown; longer ones are left out."""


async def evidence_of(recorded: Recorded, addresses: Sequence[str], token: str = "") -> str:
    """Every operation on the object, and its records as each agent stores them."""
    kind, key, operations = recorded
    reads = [kind.prepare(key, request).path for request in kind.last_reads()]
    lines = [f"{kind.name} {key}: {len(operations)} operations"]
    lines += operation_lines(operations) if len(operations) <= LISTED_MAX else []
    async with new_session(token=token) as session:
        for path in dict.fromkeys((*reads, *kind.records(key))):
            answers = [await _records(session, address, path) for address in addresses]
            for records, who in _grouped(answers):
                lines += [f"{path} at {who}", *(f"    {record}" for record in records)]
    return "\n".join(lines)


async def _records(session: aiohttp.ClientSession, address: str, path: str) -> tuple[str, ...]:
    """One line for each record of an agent; its answer instead when it has none."""
    try:
        async with session.get(f"{address}{path}{'&' if '?' in path else '?'}stale") as response:
            text = await response.text(errors="replace")
    except (aiohttp.ClientError, TimeoutError) as error:
        return (repr(error),)
    try:
        found = json.loads(text)
    except ValueError:
        return (f"{response.status} {text.strip()}",)
    documents = found.get("Versions", [found]) if isinstance(found, dict) else found or []
    return tuple(json.dumps(_compact(each)) for each in documents)


def _grouped(answers: Sequence[tuple[str, ...]]) -> list[tuple[tuple[str, ...], str]]:
    """The distinct answers, each with the numbers of the agents that gave it."""
    agents: dict[tuple[str, ...], list[str]] = {}
    for number, records in enumerate(answers):
        agents.setdefault(records, []).append(str(number))
    return [(records, f"agents {', '.join(numbers)}") for records, numbers in agents.items()]


def _compact(record: Any) -> Any:
    """A record without empty fields and long values."""
    if not isinstance(record, dict):
        return record
    filled = {name: value for name, value in record.items() if value not in (None, "", 0, False, [], {})}
    return {
        name: value
        for name, value in filled.items()
        if not isinstance(value, dict | list) or len(json.dumps(value)) <= NESTED_MAX
    }
