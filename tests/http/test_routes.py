"""Every route declares what it needs; the table of all of them is compared with the decisions in `routes.txt`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, unquote

import pytest
from aiohttp import web
from yurt.access import needs
from yurt.access.needs import Capability, describe
from yurt.http import routes
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.http.call import Call
from yurt.http.dispatcher import JOB, JobPaths, add_routes
from yurt.http.route_table import ROUTES
from yurt.http.routes import QUERY, ROW, HandlerModule, NamedHandler, Route, function_of, handlers_of
from yurt.testing.authorities import Grants
from yurt.testing.http_api import Api, serving

DECISIONS = Path(__file__).parent / "routes.txt"
READ = needs.namespace(Capability.READ_JOB)


def line(route: Route) -> str:
    """A route as the file of decisions writes it."""
    facts = [route.answered_by.value, "from nodes" if route.from_nodes else "not from nodes"]
    if route.scope is not None:
        facts.insert(0, f"scope of {route.scope.value}")
    if route.has_effect_on_get:
        facts.append("effect on GET")
    return f"{'/'.join(route.methods)} {route.path} | {describe(route.needs)} | {', '.join(facts)}"


def test_every_route_needs_what_was_decided() -> None:
    assert [line(route) for route in ROUTES] == DECISIONS.read_text().splitlines()


@pytest.mark.parametrize("named", {str(route.handler): route.handler for route in ROUTES}.values(), ids=str)
def test_every_named_handler_is_a_coroutine_function_of_a_call(named: NamedHandler) -> None:
    function = function_of(named)

    assert inspect.iscoroutinefunction(function)
    assert [each.annotation for each in inspect.signature(function).parameters.values()] == ["Call"]
    assert inspect.signature(function).return_annotation in ("web.Response", "web.StreamResponse")


def test_every_handler_is_named_by_its_module() -> None:
    """An attribute that a module of handlers has itself would be taken for the handler of this name."""
    assert [route.path for route in ROUTES if not isinstance(route.handler, NamedHandler)] == []


async def handler(call: Call) -> web.StreamResponse:
    return web.Response(text=call.part("job_id"))


def test_a_route_without_its_need_does_not_import() -> None:
    with pytest.raises(TypeError, match="needs"):
        routes.get("/v1/x", handler)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="/v1/x: needs= is a need"):
        routes.get("/v1/x", handler, needs=None)  # type: ignore[arg-type]


def test_a_need_in_a_namespace_says_where_the_namespace_comes_from() -> None:
    with pytest.raises(TypeError, match="scope=QUERY, ROW or BODY"):
        routes.get("/v1/x/{id}", handler, needs=READ)
    with pytest.raises(TypeError, match="takes no scope="):
        routes.get("/v1/x/{id}", handler, needs=needs.NODE_READ, scope=ROW)


def test_no_route_that_finds_an_object_by_id_takes_its_namespace_from_the_query() -> None:
    keyed_by_namespace = ("/v1/service/", "/v1/volume/csi/")
    by_id = [each for each in ROUTES if "{id}" in each.path and not each.path.startswith(keyed_by_namespace)]
    assert len(by_id) > 20
    assert not [line(each) for each in by_id if each.scope is QUERY]


def test_routes_of_a_path_that_disagree_about_who_answers_are_refused() -> None:
    app = make_app(None, None, AgentInfo())
    disagreeing = (
        routes.get(JOB, handler, needs=needs.ANONYMOUS),
        routes.get("/v1/x", handler, needs=needs.ANONYMOUS, answered_by=routes.AGENT),
        routes.write("/v1/x", handler, needs=needs.ANONYMOUS),
    )
    with pytest.raises(TypeError, match="/v1/x: its routes disagree"):
        add_routes(app, disagreeing)


@pytest.mark.parametrize(
    ("path", "handler_name", "job_id"),
    [
        ("a", "read", "a"),
        ("a/b", "read", "a/b"),
        ("a/dispatch-1/allocations", "allocations", "a/dispatch-1"),
        ("a/periodic/force", "force_periodic", "a"),
        ("a/dispatch/payload", "dispatch_payload", "a"),
        ("a/payload", "read", "a/payload"),
        ("/allocations", "read", "/allocations"),
        ("allocations", "read", "allocations"),
        ("periodic/force", "read", "periodic/force"),
        ("a/allocations/allocations", "allocations", "a/allocations"),
        ("a/b/versions/v/tag", "apply", "a/b"),
        ("versions/v/tag", "read", "versions/v/tag"),
    ],
)
def test_the_ending_of_a_path_decides_and_the_rest_is_the_id(path: str, handler_name: str, job_id: str) -> None:
    found = JobPaths(each for each in ROUTES if each.path.startswith(JOB)).split(path, raw_path=path)
    assert handler_name in {function_of(each.handler).__name__ for each in found.methods.routes}
    assert found.parts["job_id"] == job_id


@pytest.mark.parametrize(
    ("raw_path", "handler_name", "job_id"),
    [
        ("a%2Fallocations", "read", "a/allocations"),
        ("a%2fallocations", "read", "a/allocations"),
        ("a%2Fallocations/allocations", "allocations", "a/allocations"),
        ("a%2Fb/versions", "versions", "a/b"),
        ("a%2Fperiodic/force", "read", "a/periodic/force"),
        ("a/periodic%2Fforce", "read", "a/periodic/force"),
        ("a%2Fversions%2Fb%2Ftag", "read", "a/versions/b/tag"),
        ("a%2Fb/versions/c%20d/tag", "apply", "a/b"),
        ("a%20b/periodic/force", "force_periodic", "a b"),
        ("a/%76ersions", "versions", "a"),
    ],
)
def test_an_encoded_slash_belongs_to_the_id(raw_path: str, handler_name: str, job_id: str) -> None:
    paths = JobPaths(each for each in ROUTES if each.path.startswith(JOB))

    found = paths.split(unquote(raw_path), raw_path=f"/v1/job/{raw_path}")

    assert handler_name in {function_of(each.handler).__name__ for each in found.methods.routes}
    assert found.parts["job_id"] == job_id


@pytest.mark.parametrize(
    "job_id", ["a/allocations", "x/versions", "y/summary", "p/deployments", "q/periodic/force", "r/versions/b/tag"]
)
async def test_a_job_whose_id_ends_like_a_route_can_be_read_and_stopped(api: Api, job_id: str) -> None:
    path = f"/v1/job/{quote(job_id, safe='')}"
    await api.register(ID=job_id)

    assert (await api.get(path)).json["ID"] == job_id
    assert {each["JobID"] for each in (await api.get(f"{path}/evaluations")).json} == {job_id}
    assert (await api.call("DELETE", path)).status == 200
    assert (await api.get(path)).json["Stop"]


async def test_the_dispatcher_refuses_before_the_body_is_read() -> None:
    async with serving(authority=Grants("a", Capability.LIST_JOBS, Capability.SCALE_JOB)) as api:
        assert (await api.get("/v1/jobs?namespace=a")).status == 200
        for answer in (
            await api.get("/v1/jobs"),
            await api.get("/v1/jobs?namespace=b"),
            await api.call("POST", "/v1/job/x/scale?namespace=b", {"nonsense": 1}),
        ):
            assert (answer.status, answer.text) == (403, "Permission denied")


async def test_pages_may_ask_first_only_where_a_route_says_so() -> None:
    async with serving() as api:
        assert (await api.call("OPTIONS", "/v1/client/stats")).status == 204
        assert (await api.call("HEAD", "/v1/client/allocation/x/stats")).status != 405
        for method in ("OPTIONS", "HEAD"):
            assert (await api.call(method, "/v1/jobs")).status == 405


async def test_a_bad_index_is_told_in_the_words_of_the_route() -> None:
    async with serving() as api:
        assert (await api.get("/v1/jobs?index=x")).text == "Invalid index"
        assert (await api.get("/v1/event/stream?index=x")).text.startswith("Unable to parse index")


def test_the_routes_for_pages_are_those_of_clients_and_variables() -> None:
    of_clients = ("fs/", "stats", "allocation/", "metadata", "identity")
    beginnings = (*(f"/v1/client/{name}" for name in of_clients), "/v1/var")
    assert {each.path for each in ROUTES if each.cors} == {
        each.path for each in ROUTES if each.path.startswith(beginnings)
    }


class ImportingEnv:
    """Imports in a "thread" that ends when the test lets it."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.imports: list[str] = []

    async def in_thread(self, function: Callable[[HandlerModule], object], home: HandlerModule) -> None:
        self.imports.append(home.module)
        await self.may_end.wait()
        function(home)


async def test_a_request_during_the_import_of_its_handlers_does_not_import_them_in_the_event_loop() -> None:
    env = ImportingEnv()
    call = SimpleNamespace(context=SimpleNamespace(env=env), part=lambda _: "web")
    handlers = handlers_of(__name__)  # in sys.modules, as a module is from the beginning of its import
    answers = [asyncio.ensure_future(handlers.handler(call)) for _ in range(2)]
    await asyncio.sleep(0)
    assert env.imports == [__name__, __name__]

    env.may_end.set()

    assert [answer.text for answer in await asyncio.gather(*answers)] == ["web", "web"]
    assert (await handlers.handler(call)).text == "web"
    assert env.imports == [__name__, __name__]
