"""Workloads of `bench.pauses` that a client with one token can send: the most expensive requests for their size."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec
from yurt.sdk.schema import AttributeSpec, Schema
from yurt.sdk.value import replace
from yurt.structs.commands import RegisterJob, StoreSchema
from yurt.structs.job import PeriodicConfig

from bench.pauses_work import Kind, Site, Work, asking
from bench.scheduler import job

CRON_JOBS, CRON_LINES = 250, 150
CRON_LINE: Final = "0-59 0-59 0-23 29 2 ? *"
BODY: Final = 8_000_000
EXPRESSIONS: Final = {
    "nine stars": f"Name matches `{'.*' * 9}x`",
    "states": "Name matches `(a|b|[a-z])*b(a|[-a-z0-9]){400}`",
}
TEMPLATE: Final = "{{ range $i, $e := .y }}{{ if $e }}{{ $e | printf `%s` }}{{ end }}{{ end }}\n" * 200
ANSWERED: Final = (HTTPStatus.OK, HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR)
"""Some of it is refused, at once."""


def _document(**fields: Any) -> dict[str, Any]:
    task = {"Name": "web", "Driver": "mock", "Config": {"run_for": "1s"}} | fields.pop("task", {})
    group = {"Name": "web", "Count": 1, "Tasks": [task]}
    return {"ID": "hostile", "Name": "hostile", "Type": "batch", "Datacenters": ["dc1"], "TaskGroups": [group]} | fields


def _constraints(count: int) -> list[dict[str, str]]:
    return [
        {"LTarget": "${attr.kernel.name}", "Operand": "regexp", "RTarget": f"(linux{number}|(a|b)*a(a|b){{40}})"}
        for number in range(count)
    ]


def _groups(count: int) -> list[dict[str, Any]]:
    (group,) = _document()["TaskGroups"]
    return [group | {"Name": f"g{number}", "Count": 0} for number in range(count)]


def _registering(**fields: Any) -> Work:
    """Validate the job, plan it and register it."""
    document = _document(**fields)

    async def work(site: Site) -> None:
        await site.ask("PUT", "/v1/validate/job", {"Job": document})
        await site.ask("PUT", "/v1/job/hostile/plan", {"Job": document, "Diff": True}, ANSWERED)
        await site.ask("PUT", "/v1/jobs", {"Job": document}, ANSWERED)
        await asyncio.sleep(1.0)

    return work


async def _register_cron_jobs(site: Site) -> None:
    """Jobs of a log that a server without bounds wrote."""
    periodic = PeriodicConfig(specs=(CRON_LINE,) * CRON_LINES, time_zone="Europe/Berlin")
    for number in range(CRON_JOBS):
        made = replace(job(f"cron-{number}", 1, kind="batch"), periodic=periodic)
        await site.server.replica.propose(RegisterJob(job=made))


async def _lead_cron_jobs(site: Site) -> None:
    """The beginning of a term, until every next launch is known."""
    term = site.server.make_term()
    term.restore()
    run = asyncio.create_task(term.periodic.run())
    await asyncio.sleep(2.0)
    run.cancel()


async def _show_options(site: Site) -> None:
    """The driver of the jobs has options, and nodes have shown them."""
    options = tuple(AttributeSpec(name=f"option_{number}", type="string") for number in range(60))
    schema = Schema(attributes=(AttributeSpec(name="run_for", type="string"), *options))
    shown = StoreSchema(driver="mock", digest=schema.digest, schema=msgspec.to_builtins(schema))
    await site.server.replica.propose(shown)


def _filtering(name: str) -> Work:
    return asking("GET", f"/v1/jobs?filter={quote(EXPRESSIONS[name])}", expected=ANSWERED)


def _body(value: object) -> Mapping[str, object]:
    return {"Job": {"ID": "hostile", "Meta": value}}


HOSTILE: Final = (
    Kind("filter, nine stars", "live", "GET /v1/jobs with a pattern of nine .*", _filtering("nine stars")),
    Kind("filter, many states", "live", "with a pattern whose automaton is large", _filtering("states")),
    Kind("64 cron lines", "live", "a job of the most that are possible", _registering(
        Periodic={"Enabled": True, "Specs": [CRON_LINE] * 64})),
    Kind("150 cron lines", "live", "a job of more", _registering(
        Periodic={"Enabled": True, "Specs": [CRON_LINE] * 150})),
    Kind("leadership, cron", "live", "a term begins with 250 jobs of 150 lines", _lead_cron_jobs, _register_cron_jobs),
    Kind("100 regexps", "live", "a job of the most that are possible", _registering(Constraints=_constraints(100))),
    Kind("3,000 regexps", "live", "a job of more", _registering(Constraints=_constraints(3_000))),
    Kind("100 large templates", "live", "a job of 1.6 MB", _registering(
        task={"Templates": [{"DestPath": f"local/{n}", "EmbeddedTmpl": TEMPLATE} for n in range(100)]})),
    Kind("500 groups", "live", "a job of the most that are possible", _registering(TaskGroups=_groups(500))),
    Kind("20 unknown names", "live", "names of attributes that none of the nodes has", _registering(
        Constraints=[{"LTarget": f"${{attr.kernel.nam{n}}}", "Operand": "=", "RTarget": "x"} for n in range(20)])),
    Kind("50 unknown variables", "live", "misspelt names of NOMAD_ variables", _registering(
        task={"Env": {f"E{n}": f"${{NOMAD_ALOC_DIR_{n}}}" for n in range(50)}})),
    Kind("500 unknown options", "live", "misspelt options of a driver", _registering(
        task={"Config": {f"optoin_{n}": "x" for n in range(500)}}), _show_options),
    Kind("a body of text", "live", "8 MB in one string", asking(
        "PUT", "/v1/jobs", _body("x" * BODY), expected=ANSWERED)),
    Kind("a body of objects", "live", "8 MB of empty ones", asking(
        "PUT", "/v1/jobs", _body([{}] * (BODY // 4)), expected=ANSWERED)),
)  # fmt: skip
