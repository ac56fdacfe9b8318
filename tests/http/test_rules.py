"""The rules that every route shares: methods, errors, options, bounds, compression."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest
from yurt.testing.http_api import UNKNOWN_ID, Api


async def test_an_unknown_path_is_404_with_an_empty_body(api: Api) -> None:
    answer = await api.get("/v1/nonsense")
    assert (answer.status, answer.text) == (404, "")


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/job/web", "/v1/nodes", "/v1/status/leader", "/v1/job/web/plan"])
async def test_a_wrong_method_is_405(api: Api, path: str) -> None:
    answer = await api.call("PATCH", path)
    assert (answer.status, answer.text) == (405, "Invalid method")


@pytest.mark.parametrize(
    ("path", "status"),
    [("/v1/var/a/b", 400), ("/v1/operator/raft/peer", 404), ("/v1/operator/autopilot/configuration", 404)],
)
async def test_some_routes_have_a_status_of_their_own_for_a_wrong_method(api: Api, path: str, status: int) -> None:
    answer = await api.call("PATCH", path)
    assert (answer.status, answer.text) == (status, "Invalid method")


async def test_an_error_is_plain_text_without_a_newline(api: Api) -> None:
    answer = await api.get("/v1/job/nope")
    assert (answer.status, answer.text) == (404, "job not found")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


async def test_the_start_page_leads_to_the_user_interface_with_its_query(api: Api) -> None:
    answer = await api.get("/?a=b")
    assert (answer.status, answer.headers["Location"]) == (307, "/ui/?a=b")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("index=a", "Invalid index"),
        ("index=-1", "Invalid index"),
        ("index=99999999999999999999", "Invalid index"),
        ("wait=soon", "Invalid wait time"),
        ("stale=zz", "Expect `true` or `false` for `stale` query string parameter"),
        ("per_page=x", "Expect a number for `per_page` query string parameter"),
    ],
)
async def test_a_bad_option_is_400_with_nomads_text(api: Api, query: str, text: str) -> None:
    answer = await api.get(f"/v1/jobs?{query}")
    assert (answer.status, answer.text) == (400, text)


@pytest.mark.parametrize("word", ["", "true", "True", "false", "False", "1", "0"])
async def test_stale_takes_the_words_that_clients_write(api: Api, word: str) -> None:
    assert (await api.get(f"/v1/jobs?stale={word}")).status == 200


async def test_another_region_cannot_be_reached(api: Api) -> None:
    answer = await api.get("/v1/jobs?region=mars")
    assert (answer.status, answer.text) == (500, "No path to region")


async def test_a_read_tells_index_leader_and_last_contact(api: Api) -> None:
    answer = await api.get("/v1/jobs")
    assert answer.index == 0, "no job was ever stored"
    assert answer.headers["X-Nomad-KnownLeader"] == "true"
    assert answer.headers["X-Nomad-LastContact"] == "0"


async def test_reads_without_an_index_tell_of_the_leader_too(api: Api) -> None:
    for path in ("/v1/agent/self", "/v1/status/leader", "/v1/operator/raft/configuration", "/v1/regions"):
        headers = (await api.get(path)).headers
        assert (headers["X-Nomad-KnownLeader"], headers["X-Nomad-LastContact"]) == ("true", "0"), path


async def test_ids_hold_any_characters(api: Api) -> None:
    job_id = 'a/b\\c:d?e&f\ng\u00e9%2F"'
    path = f"/v1/job/{quote(job_id, safe='')}"
    assert (await api.get(path)).text == (await api.get(f"{path}/summary")).text == "job not found"
    assert (await api.get(f"/v1/var/{quote(job_id, safe='')}")).text == "variable not found"


async def test_filters_of_short_forms_see_whole_objects(api_with_node: Api) -> None:
    async def found(path: str, expression: str) -> list[str]:
        return [row["ID"] for row in (await api_with_node.get(path, params={"filter": expression})).json]

    await api_with_node.register("web")
    assert len(await found("/v1/nodes", 'Attributes["kernel.name"] == "linux" and Address == "127.0.0.1"')) == 1
    assert await found("/v1/nodes", 'SecretID != ""') == [] and await found("/v1/nodes", "Drain == true") == []
    assert await found("/v1/jobs", "TaskGroups.Tasks.Driver == mock_driver and Periodic is nil") == ["web"]
    assert await found("/v1/jobs", "ParameterizedJob is not nil") == []


async def test_pretty_indents_by_four_and_ends_the_line(api: Api) -> None:
    answer = await api.get("/v1/agent/members?pretty")
    assert answer.text.startswith('{\n    "Members"')
    assert answer.text.endswith("\n")
    assert not (await api.get("/v1/agent/members?pretty=0")).text.endswith("\n")


async def test_a_large_answer_is_compressed_for_a_client_that_accepts_it(api: Api) -> None:
    await api.register(Meta={str(number): "x" * 20 for number in range(100)})
    answer = await api.get("/v1/job/web", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert answer.json["ID"] == "web"
    assert "Content-Encoding" not in (await api.get("/v1/job/web", headers={"Accept-Encoding": "identity"})).headers


@pytest.mark.parametrize("path", ["/v1/sentinel/policies", "/v1/operator/license", "/v1/recommendations"])
async def test_an_enterprise_route_is_501(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert (answer.status, answer.text) == (501, "Nomad Enterprise only endpoint")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/acl/policies"),
        ("GET", "/v1/acl/token/self"),
        ("POST", "/v1/acl/login"),
        ("POST", "/v1/acl/bootstrap"),
    ],
)
async def test_acl_routes_say_that_acls_are_off(api: Api, method: str, path: str) -> None:
    answer = await api.call(method, path, {} if method == "POST" else None)
    assert (answer.status, answer.text) == (400, "ACL support disabled")


@pytest.mark.parametrize("path", ["/v1/volumes", "/v1/plugins", "/v1/services", "/v1/service/x", "/v1/allocations"])
async def test_an_empty_list_is_a_list(api: Api, path: str) -> None:
    assert (await api.get(path)).text == "[]"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/allocation/x", "alloc"),
        ("/v1/deployment/x", "deployment"),
        ("/v1/evaluation/x", "eval"),
        ("/v1/node/x", "node"),
    ],
)
async def test_an_id_that_is_no_uuid_is_500(api: Api, path: str, kind: str) -> None:
    answer = await api.get(path)
    assert (answer.status, answer.text) == (500, f"{kind} lookup failed: index error: UUID must be 36 characters")


async def test_a_read_without_an_id_goes_to_the_path_without_the_empty_segment(api: Api) -> None:
    async with api.client.get("/v1//jobs?prefix=a//b", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (301, "/v1/jobs?prefix=a//b")
    assert (await api.get("/v1/jobs?prefix=a//b")).status == 200


async def test_a_read_is_never_sent_on_to_a_host_that_its_path_names(api: Api) -> None:
    reader, writer = await asyncio.open_connection(api.client.server.host, api.client.server.port)
    writer.write(b"GET //\\evil.example/v1?a=\\b HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    head = (await reader.read()).decode()
    writer.close()
    assert "\r\nLocation: /%5Cevil.example/v1?a=%5Cb\r\n" in head


async def test_a_write_without_an_id_changes_nothing_else(api: Api) -> None:
    await api.register("scale")
    before = (await api.get("/v1/job/scale")).json
    answer = await api.put("/v1/job//scale", {"Count": 1, "Target": {"Group": "main"}})
    assert answer.status == 400 and "/v1/job/scale meant, or is an id missing" in answer.text
    assert (await api.get("/v1/job/scale")).json == before


async def test_an_id_may_begin_with_a_slash_that_is_encoded(api: Api) -> None:
    await api.register("/a//b")
    assert (await api.get("/v1/job/%2Fa%2F%2Fb")).json["ID"] == "/a//b"


async def test_a_node_that_does_not_exist_has_no_allocations(api: Api) -> None:
    for node in ("nope", "fb0f8fc6-1c25-4e3b-ae4b-c1b3c1f1c4e3"):
        answer = await api.get(f"/v1/node/{node}/allocations")
        assert (answer.status, answer.text) == (200, "[]")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v1/allocation/", "alloc not found"), ("/v1/deployment/", "deployment not found"),
        ("/v1/evaluation/", "eval not found"), ("/v1/node/", "node not found"),
    ],
)  # fmt: skip
async def test_an_unknown_uuid_is_404(api: Api, path: str, text: str) -> None:
    answer = await api.get(path + UNKNOWN_ID)
    assert (answer.status, answer.text) == (404, text)


async def test_a_prefix_of_an_id_may_leave_its_hyphens_out(api: Api) -> None:
    evaluation = (await api.register("hyphens")).json["EvalID"]
    digits = evaluation.replace("-", "")
    for prefix in (digits, digits[:10], digits[:10].upper(), evaluation[:11], f"{digits[:2]}-{digits[2:12]}"):
        assert [row["ID"] for row in (await api.get(f"/v1/evaluations?prefix={prefix}")).json] == [evaluation], prefix
    for prefix in (digits, digits[:10], digits[:11].upper(), evaluation[:11].upper()):
        found = await api.put("/v1/search", {"Prefix": prefix, "Context": "evals"})
        assert found.json["Matches"] == {"evals": [evaluation]}, prefix
        fuzzy = (await api.put("/v1/search/fuzzy", {"Text": prefix, "Context": "evals"})).json["Matches"]
        assert [each["ID"] for each in fuzzy["evals"]] == [evaluation], prefix
    of_jobs = (f"{digits[:2]}-", f"{digits[:2]}-{digits[2]}", "-")
    for other in (f"{digits[:10]}{'0' if digits[10] != '0' else '1'}0", f"{digits}ab", *of_jobs):
        found = await api.put("/v1/search", {"Prefix": other, "Context": "evals"})
        assert found.json["Matches"] == {"evals": []}, other


async def test_a_prefix_needs_an_even_number_of_hex_digits(api: Api) -> None:
    odd = await api.get("/v1/nodes?prefix=abc")
    assert odd.text == "node lookup failed: index error: Input (without hyphens) must be even length"
    assert (odd.status, (await api.get("/v1/nodes?prefix=abcd")).status) == (500, 200)
    assert (await api.get("/v1/allocations?prefix=zz")).status == 500
