"""Requests that cost much for their size hold no turn of the event loop for long."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import quote

import pytest
from yurt.testing.http_api import Api, job_document

TURN_MS = 50.0
TEMPLATE = "{{ range $i, $e := .y }}{{ if $e }}{{ $e | printf `%s` }}{{ end }}{{ end }}\n" * 200


class Meter:
    """The longest turn of the loop, in time of its thread."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def __aenter__(self) -> Meter:
        self._run = asyncio.ensure_future(self._measure())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)
        self._run.cancel()

    async def _measure(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_ms = max(self.longest_ms, (now - last) * 1000)
            last = now


def with_task(**fields: Any) -> dict[str, Any]:
    document = job_document()
    document["TaskGroups"][0]["Tasks"][0].update(fields)
    return document


REGEXPS = [{"LTarget": "${attr.x}", "Operand": "regexp", "RTarget": f"(a|b)*a(a|b){{40}}{n}"} for n in range(3000)]
TEMPLATES = [{"DestPath": f"local/{number}", "EmbeddedTmpl": TEMPLATE} for number in range(50)]
PERIODIC = {"Enabled": True, "Specs": ["0-59 0-59 0-23 29 2 ? *"] * 150}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (job_document(Type="batch", Periodic=PERIODIC), "150 cron expressions, at most 64 are possible"),
        (job_document(Type="batch", Periodic=PERIODIC | {"Specs": PERIODIC["Specs"][:60]}), ""),
        (job_document(Constraints=REGEXPS), "3000 constraints and affinities with a regexp, at most 100"),
        (job_document(Constraints=REGEXPS[:90]), ""),
        (with_task(Templates=TEMPLATES), ""),
    ],
)
async def test_a_costly_job_is_judged_without_holding_the_loop(
    api: Api, document: dict[str, Any], problem: str
) -> None:
    async with Meter() as meter:
        found = await api.put("/v1/validate/job", {"Job": document})
        planned = await api.put(f"/v1/job/{document['ID']}/plan", {"Job": document, "Diff": True})
    assert problem in found.json["Error"] and bool(found.json["Error"]) == bool(problem)
    assert (planned.status == 200) == (not problem), planned.text
    assert meter.longest_ms < TURN_MS


@pytest.mark.parametrize("pattern", [".*" * 9 + "x", "(a|b)*a(a|b){400}", "(x+x+)+y", "(a?){500}a{500}$"])
async def test_a_filter_holds_no_turn_whatever_its_pattern(api: Api, pattern: str) -> None:
    await api.register(Name="ab" * 500)
    async with Meter() as meter:
        answer = await api.get(f"/v1/jobs?filter={quote(f'Name matches `{pattern}`')}")
    assert answer.status in (200, 400) and meter.longest_ms < TURN_MS


async def test_a_body_of_too_many_values_is_refused_at_once(api: Api) -> None:
    async with Meter() as meter:
        answer = await api.put("/v1/jobs", b'{"Job":[' + b"{}," * 2_000_000 + b"{}]}")
    assert (answer.status, "at most 500000 are possible" in answer.text) == (400, True)
    assert meter.longest_ms < TURN_MS
