"""Nodes, node pools, namespaces, deployments, operator routes, the agent, search and metrics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from yurt.http.agent_info import SearchSettings
from yurt.testing.http_api import NODE_ID, UNKNOWN_ID, Api, serving


async def test_a_node_shows_no_secret_and_its_drain_flag(api_with_node: Api) -> None:
    node = (await api_with_node.get(f"/v1/node/{NODE_ID}")).json
    assert (node["SecretID"], node["Drain"], node["Status"]) == ("", False, "ready")
    (stub,) = (await api_with_node.get("/v1/nodes?resources=true&os=true")).json
    assert (stub["Address"], stub["Version"]) == ("127.0.0.1", "2.0.0")
    assert stub["NodeResources"]["Cpu"]["CpuShares"] == 4000
    assert stub["Attributes"] == {"os.name": "debian"}


async def test_nodes_are_found_by_prefix(api_with_node: Api) -> None:
    assert len((await api_with_node.get(f"/v1/nodes?prefix={NODE_ID[:8]}")).json) == 1
    assert (await api_with_node.get("/v1/nodes?prefix=22")).json == []


async def test_a_node_can_be_made_ineligible_and_drained(api_with_node: Api) -> None:
    api = api_with_node
    path = f"/v1/node/{NODE_ID}"
    answer = await api.put(f"{path}/eligibility", {"Eligibility": "ineligible"})
    assert (answer.status, answer.json["NodeModifyIndex"] > 0) == (200, True), answer.text
    assert (await api.get(path)).json["SchedulingEligibility"] == "ineligible"
    wrong = await api.put(f"{path}/eligibility", {"Eligibility": "maybe"})
    assert (wrong.status, wrong.text) == (500, 'invalid scheduling eligibility "maybe"')
    body = {"DrainSpec": {"Deadline": 3_600_000_000_000, "IgnoreSystemJobs": True}}
    assert (await api.put(f"{path}/drain", body)).status == 200
    assert (await api.put(f"{path}/drain", {"DrainSpec": None, "MarkEligible": True})).status == 200
    assert (await api.get(path)).json["SchedulingEligibility"] == "eligible"


async def test_an_unknown_node_cannot_be_changed(api: Api) -> None:
    for action in ("evaluate", "purge"):
        answer = await api.put(f"/v1/node/{UNKNOWN_ID}/{action}")
        assert (answer.status, answer.text) == (500, "node not found")


async def test_a_node_can_be_evaluated_and_purged(api_with_node: Api) -> None:
    assert (await api_with_node.put(f"/v1/node/{NODE_ID}/evaluate")).status == 200
    assert (await api_with_node.put(f"/v1/node/{NODE_ID}/purge")).status == 200
    assert (await api_with_node.get(f"/v1/node/{NODE_ID}")).status == 404


async def test_allocations_of_a_node_are_whole(api_with_node: Api) -> None:
    await api_with_node.register()
    (alloc,) = await api_with_node.wait_until(f"/v1/node/{NODE_ID}/allocations", len)
    assert alloc["Job"]["ID"] == "web"


async def test_a_stopped_allocation_gets_an_evaluation(api_with_node: Api) -> None:
    await api_with_node.register()
    (stub,) = await api_with_node.wait_until("/v1/job/web/allocations", len)
    answer = await api_with_node.call("POST", f"/v1/allocation/{stub['ID']}/stop")
    assert (answer.status, bool(answer.json["EvalID"])) == (200, True)
    missing = await api_with_node.call("POST", f"/v1/allocation/{UNKNOWN_ID}/stop")
    assert (missing.status, missing.text) == (404, "allocation not found")


async def test_node_pools_are_made_and_deleted(api: Api) -> None:
    assert {row["Name"] for row in (await api.get("/v1/node/pools")).json} == {"all", "default"}
    assert (await api.put("/v1/node/pools", {"Name": "gpu"})).status == 200
    assert (await api.get("/v1/node/pool/gpu")).json["Name"] == "gpu"
    assert (await api.get("/v1/node/pool/gpu/nodes")).json == []
    refused = await api.put("/v1/node/pools", {"Name": "all"})
    assert (refused.status, refused.text) == (400, 'modifying node pool "all" is not allowed')
    assert "must be above 0" in (await api.put("/v1/node/pools", {"Name": "x", "NodeIdentityTTL": "-1s"})).text
    assert (await api.put("/v1/node/pool/x", {"Name": "y"})).text == "Node pool name does not match request path"
    assert (await api.call("DELETE", "/v1/node/pool/gpu")).status == 200
    assert (await api.get("/v1/node/pool/gpu")).text == "node pool not found"


async def test_namespaces_are_made_and_deleted(api: Api) -> None:
    assert (await api.put("/v1/namespace", {"Name": "dev", "Description": "for trying"})).status == 200
    assert [row["Name"] for row in (await api.get("/v1/namespaces")).json] == ["default", "dev"]
    assert (await api.get("/v1/namespace/dev")).json["Description"] == "for trying"
    assert (await api.put("/v1/namespace", {})).text == "Missing Namespace Name"
    assert (await api.put("/v1/namespace/a", {"Name": "b"})).text == "Namespace name does not match request path"
    assert (await api.call("DELETE", "/v1/namespace/default")).text == "can not delete default namespace"
    assert (await api.call("DELETE", "/v1/namespace/dev")).status == 200
    assert (await api.get("/v1/namespace/dev")).text == "Namespace not found"


async def test_a_deployment_is_shown_and_can_be_paused_and_failed(api_with_node: Api) -> None:
    api = api_with_node
    await api.register(Type="service")
    deployment = await api.wait_until("/v1/job/web/deployment", lambda found: found is not None)
    path = deployment["ID"]
    assert (await api.get("/v1/deployments")).json[0]["ID"] == path
    assert (await api.get(f"/v1/deployment/allocations/{path}")).json[0]["JobID"] == "web"
    assert (await api.put(f"/v1/deployment/pause/{path}", {})).text == "DeploymentID must be specified"
    paused = await api.put(f"/v1/deployment/pause/{path}", {"DeploymentID": path, "Pause": True})
    assert paused.status == 200, paused.text
    assert (await api.put(f"/v1/deployment/fail/{path}")).status == 200
    again = await api.put(f"/v1/deployment/fail/{path}")
    assert (again.status, again.text) == (500, "can't fail terminal deployment")
    health = await api.put(f"/v1/deployment/allocation-health/{path}", {"DeploymentID": path})
    assert health.status == 500


async def test_the_scheduler_configuration_is_changed_with_check_and_set(api: Api) -> None:
    path = "/v1/operator/scheduler/configuration"
    assert (await api.get(path)).json["SchedulerConfig"]["SchedulerAlgorithm"] == "binpack"
    assert (await api.put(path, {"SchedulerAlgorithm": "spread"})).json["Updated"] is True
    assert (await api.put(f"{path}?cas=999", {"SchedulerAlgorithm": "binpack"})).json["Updated"] is False
    assert (await api.get(path)).json["SchedulerConfig"]["SchedulerAlgorithm"] == "spread"
    assert (await api.put(path, {"SchedulerAlgorithm": "x"})).status == 400


async def test_registration_can_be_disabled(api: Api) -> None:
    body = {"SchedulerAlgorithm": "binpack", "RejectJobRegistration": True}
    await api.put("/v1/operator/scheduler/configuration", body)
    answer = await api.register()
    assert answer.status == 403
    assert answer.text.endswith("disabled by the scheduler configuration")


async def test_system_routes_take_put_alone(api: Api) -> None:
    assert (await api.put("/v1/system/gc")).status == 200
    assert (await api.put("/v1/system/reconcile/summaries")).status == 200
    assert (await api.call("POST", "/v1/system/gc")).status == 405


async def test_the_agent_tells_who_it_is(api: Api) -> None:
    assert (await api.get("/v1/agent/self")).json["stats"]["nomad"]["leader"] == "true"
    members = (await api.get("/v1/agent/members")).json
    assert (members["ServerName"], members["Members"][0]["Status"]) == ("test", "alive")
    assert (await api.get("/v1/status/leader")).text == '"127.0.0.1:4647"'
    assert (await api.get("/v1/status/peers")).json == ["127.0.0.1:4647"]
    assert (await api.get("/v1/regions")).json == ["global"]
    (scheduler,) = (await api.get("/v1/agent/schedulers")).json["schedulers"]
    assert (scheduler["status"], "service" in scheduler["enabled_schedulers"]) == ("Running", True)
    assert (await api.get("/v1/operator/raft/configuration")).json["Servers"][0]["Leader"] is True
    assert (await api.get("/v1/yurt/plugins")).json == [{"name": "raw_exec", "status": "ok"}]


async def test_health_is_told_by_part(api: Api) -> None:
    assert (await api.get("/v1/agent/health")).json == {"server": {"message": "ok", "ok": True}}
    client = await api.get("/v1/agent/health?type=client")
    assert (client.status, client.json["client"]["message"]) == (500, "client not enabled")


async def test_the_signing_keys_are_public(api: Api) -> None:
    answer = await api.get("/.well-known/jwks.json")
    assert answer.json["keys"][0]["kty"] == "RSA"
    assert "max-age" in answer.headers["Cache-Control"]


async def test_a_server_without_data_on_disk_makes_one_key_for_its_first_readers(api: Api) -> None:
    answers = await asyncio.gather(*(api.get("/.well-known/jwks.json") for _ in range(3)))
    assert [len(answer.json["keys"]) for answer in answers] == [1, 1, 1]
    assert int(answers[0].headers["X-Nomad-Index"]) == api.server.replica.state.index


async def test_search_finds_by_prefix_and_by_part(api: Api) -> None:
    for number in range(25):
        await api.register(f"web-{number:02}")
    found = (await api.put("/v1/search", {"Prefix": "web", "Context": "jobs"})).json
    assert (len(found["Matches"]["jobs"]), found["Truncations"]["jobs"]) == (20, True)
    fuzzy = (await api.put("/v1/search/fuzzy", {"Text": "b-07", "Context": "jobs"})).json
    assert fuzzy["Matches"]["jobs"] == [{"ID": "web-07", "Scope": ["default", "web-07"]}]
    assert "at least 2 characters" in (await api.put("/v1/search/fuzzy", {"Text": "a"})).text


async def test_a_fuzzy_search_has_the_bounds_of_the_agents_configuration() -> None:
    async with serving(facts={"search": SearchSettings(text_min=4, matches_max=3)}) as api:
        for number in range(5):
            await api.register(f"shop-{number}")
        found = (await api.put("/v1/search/fuzzy", {"Text": "shop", "Context": "jobs"})).json
        assert (len(found["Matches"]["jobs"]), found["Truncations"]["jobs"]) == (3, True)
        short = await api.put("/v1/search/fuzzy", {"Text": "sho"})
        assert (short.status, short.text) == (500, "fuzzy search query must be at least 4 characters, got 3")
        assert len((await api.put("/v1/search", {"Prefix": "s", "Context": "jobs"})).json["Matches"]["jobs"]) == 5
    async with serving(facts={"search": SearchSettings(is_enabled=False)}) as api:
        refused = await api.put("/v1/search/fuzzy", {"Text": "shop"})
        assert refused.status == 500 and refused.text.startswith("fuzzy search is not enabled")


@pytest.mark.parametrize("path", ["/v1/search", "/v1/search/fuzzy"])
async def test_a_search_in_an_unknown_context_is_told_which_there_are(api: Api, path: str) -> None:
    answer = await api.put(path, {"Prefix": "ab", "Text": "ab", "Context": "job"})
    assert answer.status == 500
    assert answer.text == (
        'there is no context "job"; it must be one of allocs, deployment, evals, jobs, nodes, node_pools, namespaces, '
        'quotas, recommendations, scaling_policy, plugins, volumes, host_volumes, vars or all (did you mean "jobs"?)'
    )


async def test_a_fuzzy_search_finds_the_parts_of_jobs(api: Api) -> None:
    tasks = [
        {"Name": "cache", "Driver": "docker", "Config": {"image": "redis:7"}, "Services": [{"Name": "cache-api"}]},
        {"Name": "app", "Driver": "java", "Config": {"class": "org.Cache", "command": "cachectl"}},
    ]
    group = {"Name": "caches", "Services": [{"Name": "cache-web"}], "Tasks": tasks}
    await api.register("web", TaskGroups=[group])

    found = (await api.put("/v1/search/fuzzy", {"Text": "CACHE", "Context": "jobs"})).json

    of_group = ["default", "web", "caches"]
    assert found["Matches"] == {
        "groups": [{"ID": "caches", "Scope": ["default", "web"]}],
        "tasks": [{"ID": "cache", "Scope": of_group}],
        "services": [{"ID": "cache-api", "Scope": [*of_group, "cache"]}, {"ID": "cache-web", "Scope": of_group}],
        "commands": [{"ID": "cachectl", "Scope": [*of_group, "app"]}],
        "classes": [{"ID": "org.Cache", "Scope": [*of_group, "app"]}],
    }
    image = (await api.put("/v1/search/fuzzy", {"Text": "redis"})).json
    assert image["Matches"] == {"images": [{"ID": "redis:7", "Scope": [*of_group, "cache"]}]}
    assert image["Truncations"]["images"] is False


async def test_a_fuzzy_search_shows_as_many_parts_of_jobs_as_the_agent_is_configured_for() -> None:
    async with serving(facts={"search": SearchSettings(matches_max=3)}) as api:
        for number in range(5):
            await api.register(f"shop-{number}", TaskGroups=[job_group(f"front-{number}")])
        found = (await api.put("/v1/search/fuzzy", {"Text": "front", "Context": "jobs"})).json
        assert [each["ID"] for each in found["Matches"]["groups"]] == ["front-0", "front-1", "front-2"]
        assert (found["Truncations"]["groups"], found["Truncations"]["tasks"]) == (True, False)


def job_group(name: str) -> dict[str, Any]:
    return {"Name": name, "Tasks": [{"Name": "main", "Driver": "mock_driver"}]}


async def test_scaling_policies_are_found_by_their_ids(api: Api) -> None:
    scaled = {"Name": "g", "Scaling": {"Max": 3}, "Tasks": [{"Name": "main", "Driver": "mock_driver"}]}
    await api.register("web", TaskGroups=[scaled])
    (policy,) = (await api.get("/v1/scaling/policies")).json

    found = (await api.put("/v1/search", {"Prefix": policy["ID"][:6], "Context": "scaling_policy"})).json

    assert found["Matches"] == {"scaling_policy": [policy["ID"]]}


async def test_the_number_of_workers_and_what_they_schedule_change_while_they_work(api: Api) -> None:
    path = "/v1/agent/schedulers/config"
    changed = await api.put(path, {"num_schedulers": 2, "enabled_schedulers": ["batch", "_core"]})
    assert (changed.json["num_schedulers"], changed.json["enabled_schedulers"]) == (2, ["batch", "_core"])
    assert [row["id"] for row in (await api.get("/v1/agent/schedulers")).json["schedulers"]] == ["test-0", "test-1"]
    await api.register("service", Type="service")
    await api.register("batch", Type="batch")
    done = lambda rows: any(row["Status"] == "complete" for row in rows)  # noqa: E731
    await api.wait_until("/v1/job/batch/evaluations", done)
    assert [row["Status"] for row in (await api.get("/v1/job/service/evaluations")).json] == ["pending"]

    await api.put(path, {"num_schedulers": 1, "enabled_schedulers": ["service"]})

    await api.wait_until("/v1/job/service/evaluations", done)
    wrong = await api.put(path, {"num_schedulers": -1, "enabled_schedulers": ["servce"]})
    assert (wrong.status, wrong.text) == (400, "Invalid request")
    assert wrong.headers["X-Yurt-Problem"] == (
        '"servce" is not a scheduler: use service, batch, system, sysbatch, _core; '
        "num_schedulers must be from 0 to 64, not -1"
    )


async def test_an_agent_without_files_has_nothing_to_read_again(api: Api) -> None:
    assert (await api.put("/v1/agent/reload")).text.startswith("this agent was started without a configuration file")


@pytest.mark.parametrize("kind", ["id", "address"])
async def test_an_unknown_voter_is_told_by_what_was_asked(api: Api, kind: str) -> None:
    answer = await api.call("DELETE", f"/v1/operator/raft/peer?{kind}=nope")
    assert answer.status == 500
    assert answer.text.startswith(f'{kind} "nope" was not found in the Raft configuration')


async def test_a_job_without_an_id_is_validated(api: Api) -> None:
    answer = (await api.put("/v1/validate/job", {"Job": {"Type": "service"}})).json
    assert "Missing job ID" in answer["ValidationErrors"]


async def test_metrics_come_as_json_and_for_prometheus(api: Api) -> None:
    await api.register()
    gauges = {row["Name"]: row["Value"] for row in (await api.get("/v1/metrics")).json["Gauges"]}
    assert gauges["nomad.nomad.job_status.pending"] + gauges.get("nomad.nomad.job_status.running", 0) == 1
    text = (await api.get("/v1/metrics?format=prometheus")).text
    assert "nomad_nomad_state_index " in text


async def test_evaluations_are_listed_counted_and_filtered(api: Api) -> None:
    await api.register("a")
    await api.register("b")
    registered = 'filter=TriggeredBy=="job-register"'
    assert (await api.get(f"/v1/evaluations/count?{registered}")).json == {"Count": 2}
    assert {row["JobID"] for row in (await api.get("/v1/evaluations?job=b")).json} == {"b"}
    mixed = await api.get("/v1/evaluations?job=b&filter=JobID==a")
    assert (mixed.status, mixed.text) == (400, "Filter expression cannot be used with other filter parameters")


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v1/client/fs/ls/", 400, "must provide a valid alloc id"),
        ("/v1/client/fs/ls", 400, "must provide a valid alloc id"),
        ("/v1/client/fs/nonsense/x", 404, "Invalid method"),
        (f"/v1/client/fs/ls/{UNKNOWN_ID}", 404, f'Unknown allocation "{UNKNOWN_ID}"'),
        (f"/v1/client/allocation/{UNKNOWN_ID}/stats", 404, f'Unknown allocation "{UNKNOWN_ID}"'),
        ("/v1/client/stats", 400, "No local Node and node_id not provided"),
        (f"/v1/client/stats?node_id={UNKNOWN_ID}", 404, f'Unknown node "{UNKNOWN_ID}"'),
        ("/v1/agent/servers", 501, "Invalid method"),
        ("/v1/event/stream?index=x", 400, "Unable to parse index: it must be a number, 0 or more"),
        ("/v1/agent/monitor?log_level=loud", 400, "Unknown log level: loud"),
        (
            "/v1/event/stream?topic=Evaluation:::*",
            400,
            "Invalid topic query: Invalid key value pair for topic, topic: Evaluation:::*",
        ),
    ],
)
async def test_a_route_of_a_node_says_what_is_missing(api: Api, path: str, status: int, text: str) -> None:
    answer = await api.get(path)
    assert (answer.status, answer.text) == (status, text)


async def test_an_unknown_topic_is_answered_with_the_topics(api: Api) -> None:
    answer = await api.get("/v1/event/stream?topic=Job:a&topic=Nonsense:*")
    assert answer.status == 400
    assert answer.text.startswith('Invalid topic query: unknown topic "Nonsense"; the topics are *, ACLAuthMethod, ')


async def test_a_node_that_is_not_connected_has_no_path(api_with_node: Api) -> None:
    answer = await api_with_node.get(f"/v1/client/stats?node_id={NODE_ID}")
    assert (answer.status, answer.text) == (404, "No path to node")
