"""The routes of access control, with tokens that decide: who may ask, what is answered, what is refused."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from yurt.access import Access, Actor, ShownToken, needs
from yurt.acl import parse_policy, resolver
from yurt.acl.policy import Policy
from yurt.http.agent_info import AgentInfo
from yurt.http.app import BLOCKING_MAX, make_app
from yurt.http.call import AUTHORITY, CONTEXT
from yurt.runtime.env import RealEnv
from yurt.server.config import AclConfig, ServerConfig
from yurt.server.keys.method_secrets import opened_secrets
from yurt.server.server import Server
from yurt.server.views import View
from yurt.server.views.acl import BindingRuleRows, RoleRows, TokenRows
from yurt.storage.memory import MemoryLog
from yurt.structs.acl import hash_of_secret
from yurt.testing.access import READ_PROD, Callers, bootstrapped
from yurt.testing.http_api import job_document, serving


@pytest.fixture
async def acl(tmp_path: Path) -> AsyncIterator[Callers]:
    """An API with access control, bootstrapped."""
    async with bootstrapped(data_dir=str(tmp_path)) as callers:
        yield callers


# Bootstrap.


async def test_bootstrap_gives_the_first_management_token_once(acl: Callers) -> None:
    assert {name: acl.root[name] for name in ("Name", "Type", "Global", "Policies", "Roles")} == {
        "Name": "Bootstrap Token", "Type": "management", "Global": True, "Policies": None, "Roles": None,
    }  # fmt: skip
    again = await acl.call("POST", "/v1/acl/bootstrap", token="")
    assert (again.status, again.text) == (
        400, f"ACL bootstrap already done (reset index: {acl.root['ModifyIndex']})"
    )  # fmt: skip


async def test_bootstrap_takes_a_secret_that_is_a_uuid() -> None:
    async with serving(acl=AclConfig(enabled=True)) as api:
        bad = await api.call("POST", "/v1/acl/bootstrap", {"BootstrapSecret": "hunter2"})
        assert (bad.status, bad.text) == (400, "invalid acl token")
        secret = str(uuid.uuid4())
        assert (await api.call("POST", "/v1/acl/bootstrap", {"BootstrapSecret": secret})).json["SecretID"] == secret
        found = await api.get("/v1/acl/tokens", headers={"Authorization": f"bearer {secret}"})
        assert found.status == 200


async def test_a_file_allows_another_bootstrap_once(acl: Callers, tmp_path: Path) -> None:
    permission = tmp_path / "acl-bootstrap-reset"
    index = acl.root["ModifyIndex"]
    permission.write_text(f"{index + 1}\n")
    wrong = await acl.call("POST", "/v1/acl/bootstrap", token="")
    assert wrong.text == f"Invalid bootstrap reset index (specified {index + 1}, reset index: {index})"
    permission.write_text(f"{index}\n")
    assert (await acl.call("POST", "/v1/acl/bootstrap", token="")).status == 200
    assert (await acl.call("POST", "/v1/acl/bootstrap", token="")).status == 400
    assert (await acl.get("/v1/acl/token/self")).status == 200


@pytest.mark.parametrize("held", [b"", b"yes\n", b"\xff\n", b"-3\n", b"9" * 5_000])
async def test_a_file_that_holds_no_index_allows_nothing(acl: Callers, tmp_path: Path, held: bytes) -> None:
    (tmp_path / "acl-bootstrap-reset").write_bytes(held)
    refused = await acl.call("POST", "/v1/acl/bootstrap", token="")
    assert refused.status == 400 and "acl-bootstrap-reset in the server's data directory must hold" in refused.text


# Policies.


async def test_a_policy_is_stored_shown_listed_and_deleted(acl: Callers) -> None:
    job = {"Namespace": "prod", "JobID": "web", "Group": "", "Task": ""}
    await acl.policy("ops", Description="d", JobACL=job)
    shown = (await acl.get("/v1/acl/policy/ops")).json
    assert (shown["Name"], shown["Rules"], shown["JobACL"], shown["Description"]) == ("ops", READ_PROD, job, "d")
    listed = (await acl.get("/v1/acl/policies")).json
    assert [sorted(row) for row in listed] == [["CreateIndex", "Description", "JobACL", "ModifyIndex", "Name"]]
    assert (await acl.call("DELETE", "/v1/acl/policy/ops")).status == 200
    missing = await acl.get("/v1/acl/policy/ops")
    assert (missing.status, missing.text) == (404, "ACL policy not found")
    assert (await acl.call("DELETE", "/v1/acl/policy/ops")).status == 404


async def test_a_wrong_policy_is_refused_with_every_mistake_and_its_place(acl: Callers) -> None:
    rules = 'namespace "a" { policy = "raed" }\nnods { policy = "read" }\n'
    answer = await acl.put("/v1/acl/policy/a_b", {"Name": "a_b", "Rules": rules, "JobACL": {"JobID": "web"}})
    assert answer.status == 400
    assert answer.text.startswith("policy 0 invalid: 3 errors occurred:\n\t* invalid name 'a_b'\n\t* failed to parse")
    for text in ("rules:1:26:", 'Did you mean "read"?', "rules:2:1:", "namespace must be set to set job ID"):
        assert text in answer.text
    other = await acl.put("/v1/acl/policy/b", {"Name": "a", "Rules": READ_PROD})
    assert (other.status, other.text) == (400, "ACL policy name does not match request path")


async def test_a_long_policy_is_read_as_a_short_one(acl: Callers) -> None:
    rules = "".join(f'namespace "team-{number}" {{ policy = "read" }}\n' for number in range(1000))
    await acl.policy("long", rules)
    secret = (await acl.token("long"))["SecretID"]
    assert (await acl.get("/v1/jobs?namespace=team-999", token=secret)).status == 200
    wrong = await acl.put("/v1/acl/policy/long", {"Name": "long", "Rules": rules + "nods {}"})
    assert (wrong.status, "rules:1001:1:" in wrong.text) == (400, True)


async def test_a_caller_sees_the_policies_of_its_own_token(acl: Callers) -> None:
    await acl.policy("p1")
    await acl.policy("p2")
    secret = (await acl.token("p1"))["SecretID"]
    assert (await acl.get("/v1/acl/policy/p1", token=secret)).status == 200
    refused = await acl.get("/v1/acl/policy/p2", token=secret)
    assert (refused.status, refused.text) == (403, "Permission denied")
    assert [row["Name"] for row in (await acl.get("/v1/acl/policies", token=secret)).json] == ["p1"]
    assert [row["Name"] for row in (await acl.get("/v1/acl/policy/self", token=secret)).json] == ["p1"]
    assert (await acl.get("/v1/acl/policy/self")).text == "null"
    assert (await acl.get("/v1/acl/policy/self", token="")).status == 403
    assert (await acl.get("/v1/acl/policies", token="")).json == []
    assert (await acl.get("/v1/acl/tokens", token=secret)).status == 403
    for method, path in (("PUT", "/v1/acl/policy/p1"), ("DELETE", "/v1/acl/policy/p1"), ("PUT", "/v1/acl/role")):
        assert (await acl.call(method, path, {"Name": "p1"}, token=secret)).status == 403


async def test_everybody_sees_the_policy_of_everybody(acl: Callers) -> None:
    await acl.policy("anonymous")
    assert (await acl.get("/v1/acl/policy/anonymous", token="")).status == 200


# Tokens.


async def test_a_token_shows_its_secret_when_it_is_made_and_to_its_holder(acl: Callers) -> None:
    await acl.policy("ops")
    made = await acl.token("ops", Name="ci", ExpirationTTL="30m")
    path, secret = f"/v1/acl/token/{made['AccessorID']}", made["SecretID"]
    assert (made["Name"], made["ExpirationTTL"], made["Global"]) == ("ci", "30m0s", False)
    assert (await acl.get(path, token=secret)).json == made
    assert (await acl.get("/v1/acl/token/self", token=secret)).json == made
    assert (await acl.get(path)).json == {**made, "SecretID": ""}
    (listed,) = [row for row in (await acl.get("/v1/acl/tokens")).json if row["Name"] == "ci"]
    assert "SecretID" not in listed and "ExpirationTTL" not in listed
    assert listed["ExpirationTime"] == made["ExpirationTime"]


async def test_no_secret_of_a_token_is_in_the_state(acl: Callers) -> None:
    await acl.policy("ops")
    secret = (await acl.token("ops"))["SecretID"]
    state = acl.api.server.state
    rows = repr([list(table.items()) for table in state.tables()])
    assert secret not in rows and acl.root["SecretID"] not in rows


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"Type": "client"}, "client token missing policies or roles"),
        ({"Type": "management", "Policies": ["a"]}, "management token cannot be associated with policies or roles"),
        ({"Type": "root"}, "token type must be client or management"),
        ({"Type": "client", "Policies": ["a"], "Name": "n" * 257}, "token name too long"),
        ({"Type": "client", "Policies": [""]}, "a policy has no name"),
        ({"Type": "management", "ExpirationTTL": "-1m"}, "token expiration TTL '-1m0s' should not be negative"),
        ({"Type": "management", "ExpirationTTL": "48h"}, "cannot be more than 24h0m0s in the future (was 48h0m0s)"),
        ({"Type": "management", "ExpirationTTL": "5s"}, "cannot be less than 1m0s in the future (was 5s)"),
        ({"Type": "management", "ExpirationTTL": "soon"}, "is not a valid duration"),
        ({"Type": "management", "ExpirationTime": "2001-01-01T00:00:00Z"}, "cannot be before create time"),
        ({"Type": "client", "Roles": [{"Name": "x"}]}, "cannot find role x"),
        ({"Type": "client", "Policies": ["a"], "AccessorID": str(uuid.UUID(int=5))}, "cannot find token"),
    ],
)
async def test_a_wrong_token_is_refused(acl: Callers, body: dict[str, Any], text: str) -> None:
    answer = await acl.put("/v1/acl/token", body)
    assert answer.status == 400 and text in answer.text, answer.text


async def test_a_token_is_changed_and_keeps_its_secret(acl: Callers) -> None:
    await acl.policy("ops")
    made = await acl.token("ops")
    path, secret = f"/v1/acl/token/{made['AccessorID']}", made["SecretID"]
    changed = {"AccessorID": made["AccessorID"], "Type": "client", "Policies": ["dev"], "Name": "n"}
    assert (await acl.put(path, changed)).json["Policies"] == ["dev"]
    assert (await acl.get("/v1/acl/token/self", token=secret)).json["Name"] == "n"
    other = await acl.put(path, {**changed, "AccessorID": str(uuid.UUID(int=5))})
    assert (other.status, other.text) == (400, "ACL token accessor does not match request path")


def brought(**changes: object) -> dict[str, Any]:
    """A token with ids of its own."""
    ids = {"AccessorID": str(uuid.uuid4()), "SecretID": str(uuid.uuid4())}
    return {**ids, "Name": "n", "Type": "client", "Policies": ["ops"], **changes}


@pytest.mark.parametrize("names_it", [False, True])
async def test_a_token_may_be_brought_along(acl: Callers, names_it: bool) -> None:
    body = brought(ExpirationTTL="1h")
    made = await acl.put(f"/v1/acl/token{names_it * ('/' + body['AccessorID'])}", body)
    assert made.status == 200 and {name: made.json[name] for name in body} == {**body, "ExpirationTTL": "1h0m0s"}
    own = await acl.get("/v1/acl/token/self", token=body["SecretID"].upper())
    assert own.json == {**made.json, "SecretID": body["SecretID"].upper()}
    assert (await acl.get(f"/v1/acl/token/{body['AccessorID']}")).json["SecretID"] == ""
    state = acl.api.server.state
    assert body["SecretID"] not in repr([list(table.items()) for table in state.tables()])


@pytest.mark.parametrize("names_it", [False, True])
@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"Type": "management", "Policies": []}, "a token created with given ids must have Type client"),
        ({"SecretID": "hunter2"}, "AccessorID and SecretID must be UUIDs"),
        ({"AccessorID": "x"}, "AccessorID and SecretID must be UUIDs"),
        (
            {"Type": "", "SecretID": "x"},
            "AccessorID and SecretID must be UUIDs; a token created with given ids must have Type client",
        ),
    ],
)
async def test_a_token_with_unfit_ids_or_type_is_not_brought_along(
    acl: Callers, names_it: bool, changes: dict[str, Any], problems: str
) -> None:
    body = brought(**changes)
    answer = await acl.put(f"/v1/acl/token{names_it * ('/' + body['AccessorID'])}", body)
    assert (answer.status, answer.text) == (400, f"cannot find token {body['AccessorID']}, nor create it: {problems}")
    assert len(acl.api.server.state.acl_tokens) == 1


async def test_only_management_brings_tokens_along(acl: Callers) -> None:
    await acl.policy("ops")
    made, body = await acl.token("ops"), brought()
    for token in (made["SecretID"], "", body["SecretID"]):
        answer = await acl.call("PUT", f"/v1/acl/token/{body['AccessorID']}", body, token=token)
        assert (answer.status, answer.text) == (403, "Permission denied")
    wrong = await acl.put(f"/v1/acl/token/{body['AccessorID']}", {**body, "Policies": []})
    assert wrong.status == 400 and "client token missing policies or roles" in wrong.text


async def test_a_token_that_is_known_keeps_its_secret_whatever_a_body_brings(acl: Callers) -> None:
    first, other = brought(), brought()
    path = f"/v1/acl/token/{first['AccessorID']}"
    await acl.put(path, first)
    again = await acl.put(path, {**first, "SecretID": other["SecretID"], "Name": "m"})
    assert (again.status, again.json["Name"], again.json["SecretID"]) == (200, "m", "")
    assert (await acl.get("/v1/acl/token/self", token=first["SecretID"])).json["Name"] == "m"
    assert (await acl.get("/v1/acl/token/self", token=other["SecretID"])).status == 403


async def test_a_revoked_token_is_worth_nothing(acl: Callers) -> None:
    made = await acl.token("ops")
    path, secret = f"/v1/acl/token/{made['AccessorID']}", made["SecretID"]
    assert (await acl.call("DELETE", path)).status == 200
    for route in ("/v1/acl/token/self", "/v1/acl/policies", "/v1/namespaces", "/v1/jobs"):
        refused = await acl.get(route, token=secret)
        assert (refused.status, refused.text) == (403, "Permission denied"), route
    assert (await acl.get(path)).text == "ACL token not found"
    again = await acl.call("DELETE", path)
    assert (again.status, again.text) == (400, f"Cannot delete nonexistent tokens: {made['AccessorID']}")


@pytest.mark.parametrize("token", ["x", str(uuid.UUID(int=7)), "eyJhbGciOiJub25lIn0.e30."])
async def test_a_token_that_is_none_is_refused(acl: Callers, token: str) -> None:
    await acl.policy("anonymous")
    assert (await acl.get("/v1/acl/policies", token=token)).status == 403
    assert (await acl.get("/v1/jobs?namespace=prod", token=token)).status == 403
    assert (await acl.get("/v1/acl/auth-methods", token=token)).status == 200


async def test_a_foreign_token_is_not_shown(acl: Callers) -> None:
    made, other = await acl.token("ops"), await acl.token("ops")
    for accessor in (other["AccessorID"], str(uuid.UUID(int=5))):
        assert (await acl.get(f"/v1/acl/token/{accessor}", token=made["SecretID"])).status == 403
    bad = await acl.get("/v1/acl/token/x")
    assert (bad.status, "acl token lookup failed: index error: UUID must be 36 characters") == (500, bad.text)


async def test_a_caller_without_a_token_is_anonymous(acl: Callers) -> None:
    shown = (await acl.get("/v1/acl/token/self", token="")).json
    assert (shown["AccessorID"], shown["Policies"], shown["SecretID"]) == ("anonymous", ["anonymous"], "")


async def test_a_token_reads_what_its_policy_grants(acl: Callers) -> None:
    await acl.policy("ops")
    secret = (await acl.token("ops"))["SecretID"]
    assert (await acl.get("/v1/jobs?namespace=prod", token=secret)).json == []
    assert (await acl.get("/v1/jobs?namespace=dev", token=secret)).status == 403
    assert (await acl.get("/v1/nodes", token=secret)).status == 403
    await acl.policy("anonymous")
    assert (await acl.get("/v1/jobs?namespace=prod", token="")).status == 200


async def test_a_one_time_token_gives_the_token_once(acl: Callers) -> None:
    made = await acl.token("ops")
    once = (await acl.call("POST", "/v1/acl/token/onetime", token=made["SecretID"])).json["OneTimeToken"]
    assert once["AccessorID"] == made["AccessorID"]
    body = {"OneTimeSecretID": once["OneTimeSecretID"]}
    given = await acl.call("POST", "/v1/acl/token/onetime/exchange", body, token="")
    assert given.json["Token"] == made
    again = await acl.call("POST", "/v1/acl/token/onetime/exchange", body, token="")
    assert (again.status, again.text) == (403, "Permission denied")


async def test_nobody_without_a_token_gets_a_one_time_token(acl: Callers) -> None:
    assert (await acl.call("POST", "/v1/acl/token/onetime", token="")).status == 403


# Races.


async def test_of_many_who_bootstrap_at_once_one_succeeds() -> None:
    async with serving(acl=AclConfig(enabled=True)) as api:
        answers = await asyncio.gather(*(api.call("POST", "/v1/acl/bootstrap") for _ in range(8)))
        assert sorted(answer.status for answer in answers) == [200] + [400] * 7
        assert len(api.server.state.acl_tokens) == 1


async def test_of_many_who_exchange_a_one_time_token_one_succeeds(acl: Callers) -> None:
    once = (await acl.call("POST", "/v1/acl/token/onetime")).json["OneTimeToken"]["OneTimeSecretID"]
    asked = ({"OneTimeSecretID": once} for _ in range(8))
    answers = await asyncio.gather(
        *(acl.call("POST", "/v1/acl/token/onetime/exchange", body, token="") for body in asked)
    )
    assert sorted(answer.status for answer in answers) == [200] + [403] * 7


async def test_of_many_who_bring_one_accessor_id_along_at_once_one_gives_it_its_secret(acl: Callers) -> None:
    bodies = [brought(AccessorID=str(uuid.UUID(int=5))) for _ in range(8)]
    answers = await asyncio.gather(*(acl.put("/v1/acl/token", body) for body in bodies))
    (given,) = [answer.json["SecretID"] for answer in answers if answer.status == 200 and answer.json["SecretID"]]
    shown = [await acl.get("/v1/acl/token/self", token=body["SecretID"]) for body in bodies]
    assert [answer.status for answer in shown] == [200 if body["SecretID"] == given else 403 for body in bodies]


async def test_of_many_who_bring_one_secret_along_at_once_one_succeeds(acl: Callers) -> None:
    bodies = [brought(SecretID=str(uuid.UUID(int=5))) for _ in range(8)]
    answers = await asyncio.gather(*(acl.put("/v1/acl/token", body) for body in bodies))
    (made,) = [answer.json for answer in answers if answer.status == 200]
    assert [(answer.status, answer.text) for answer in answers if answer.status != 200] == [
        (400, f"cannot find token {body['AccessorID']}, nor create it: another token has this secret")
        for body in bodies
        if body["AccessorID"] != made["AccessorID"]
    ]
    assert (await acl.get("/v1/acl/token/self", token=made["SecretID"])).json == made
    root = await acl.put("/v1/acl/token", brought(SecretID=acl.root["SecretID"]))
    assert (root.status, "another token has this secret" in root.text) == (400, True)


async def test_concurrent_changes_of_a_login_method_lose_nothing(acl: Callers) -> None:
    await acl.put("/v1/acl/auth-method", METHOD)
    changes = [{"MaxTokenTTL": "2h"}, {"TokenLocality": "global"}, {"TokenNameFormat": "x"}]
    answers = await asyncio.gather(
        *(acl.put("/v1/acl/auth-method/ci", {"Name": "ci", "Default": True, **each}) for each in changes)
    )
    assert [answer.status for answer in answers] == [200, 200, 200]
    shown = (await acl.get("/v1/acl/auth-method/ci")).json
    assert (shown["MaxTokenTTL"], shown["TokenLocality"], shown["TokenNameFormat"]) == ("2h0m0s", "global", "x")


# Views.


async def test_no_view_shows_tokens_of_others_whatever_a_route_needs(acl: Callers) -> None:
    await acl.policy("ops")
    made = await acl.token("ops")
    actor = Actor(caller=ShownToken(secret_hash=hash_of_secret(made["SecretID"])))
    authority = acl.api.client.app[AUTHORITY]
    for need in (needs.AUTHENTICATED, needs.ANONYMOUS):
        view = View(acl.api.server.state, Access(actor, need, authority))
        assert [row.accessor_id for row in view.of(TokenRows).all()] == [made["AccessorID"]]
        assert view.of(TokenRows).get(acl.root["AccessorID"]) is None
        assert not list(view.of(RoleRows).all()) and not list(view.of(BindingRuleRows).all())


# Roles.


async def test_a_role_gives_its_policies_to_its_tokens(acl: Callers) -> None:
    await acl.policy("ops")
    role = (await acl.put("/v1/acl/role", {"Name": "web", "Policies": [{"Name": "ops"}]})).json
    made = await acl.token(Roles=[{"Name": "web"}])
    assert made["Roles"] == [{"ID": role["ID"], "Name": "web"}]
    assert (await acl.get("/v1/jobs?namespace=prod", token=made["SecretID"])).status == 200
    assert (await acl.get(f"/v1/acl/role/{role['ID']}", token=made["SecretID"])).json == role
    assert (await acl.get("/v1/acl/role/name/web", token=made["SecretID"])).json == role
    assert [each["Name"] for each in (await acl.get("/v1/acl/policies", token=made["SecretID"])).json] == ["ops"]
    assert (await acl.call("DELETE", f"/v1/acl/role/{role['ID']}")).status == 200
    assert (await acl.get("/v1/jobs?namespace=prod", token=made["SecretID"])).status == 403
    assert (await acl.get("/v1/acl/token/self", token=made["SecretID"])).json["Roles"] is None


async def test_roles_of_others_are_not_shown(acl: Callers) -> None:
    await acl.policy("ops")
    role = (await acl.put("/v1/acl/role", {"Name": "web", "Policies": [{"Name": "ops"}]})).json
    secret = (await acl.token("ops"))["SecretID"]
    assert (await acl.get("/v1/acl/roles", token=secret)).json == []
    assert (await acl.get(f"/v1/acl/role/{role['ID']}", token=secret)).status == 403
    assert [each["Name"] for each in (await acl.get("/v1/acl/roles")).json] == ["web"]
    assert (await acl.get("/v1/acl/role/none")).text == "ACL role not found"


async def test_wrong_roles_are_refused(acl: Callers) -> None:
    await acl.policy("ops")
    assert (await acl.put("/v1/acl/role", {"Name": "web", "Policies": [{"Name": "ops"}]})).status == 200
    again = await acl.put("/v1/acl/role", {"Name": "web", "Policies": [{"Name": "ops"}]})
    assert (again.status, again.text) == (400, "role with name web already exists")
    unknown = await acl.put("/v1/acl/role", {"Name": "db", "Policies": [{"Name": "x"}]})
    assert (unknown.status, unknown.text) == (400, "cannot find policy x")
    empty = await acl.put("/v1/acl/role", {"Name": "a b"})
    assert "invalid name 'a b'" in empty.text and "at least one policy should be specified" in empty.text
    path = await acl.put("/v1/acl/role/r1", {"ID": "r2", "Name": "db", "Policies": [{"Name": "ops"}]})
    assert (path.status, path.text) == (400, "ACL role ID does not match request path")
    gone = await acl.call("DELETE", "/v1/acl/role/r1")
    assert (gone.status, gone.text) == (404, "ACL role not found")


# Login methods and binding rules.

METHOD = {
    "Name": "ci", "Type": "OIDC", "TokenLocality": "local", "MaxTokenTTL": "1h", "Default": True,
    "Config": {"OIDCDiscoveryURL": "https://id", "OIDCClientID": "c", "OIDCClientSecret": "hush",
               "ClockSkewLeeway": "30s"},
}  # fmt: skip


async def test_a_login_method_is_shown_without_its_secret_and_keeps_it(acl: Callers) -> None:
    made = await acl.put("/v1/acl/auth-method", METHOD)
    assert made.status == 200, made.text
    shown = (await acl.get("/v1/acl/auth-method/ci")).json
    assert shown == made.json
    assert (shown["MaxTokenTTL"], shown["TokenNameFormat"]) == ("1h0m0s", "${auth_method_type}-${auth_method_name}")
    assert (shown["Config"]["OIDCClientSecret"], shown["Config"]["ClockSkewLeeway"]) == ("redacted", "30s")
    # What was shown may be sent back.
    assert (await acl.put("/v1/acl/auth-method/ci", {**shown, "MaxTokenTTL": "2h"})).json["MaxTokenTTL"] == "2h0m0s"
    assert opened_secrets(acl.api.server.keys.keyring, acl.api.server.state.acl_auth_methods["ci"]) == ("hush", "")


async def test_whoever_wants_to_log_in_sees_the_methods(acl: Callers) -> None:
    await acl.put("/v1/acl/auth-method", METHOD)
    (stub,) = (await acl.get("/v1/acl/auth-methods", token="")).json
    assert (sorted(stub), stub["Default"]) == (["CreateIndex", "Default", "ModifyIndex", "Name", "Type"], True)
    assert (await acl.get("/v1/acl/auth-method/ci", token="")).status == 403


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"Type": "oidc"}, "invalid token type 'oidc'"),
        ({"TokenLocality": "here"}, "invalid token locality 'here'"),
        ({"Config": {}}, "invalid config: missing OIDCDiscoveryURL"),
        ({"Type": "JWT", "Config": {}}, "requires either OIDCDiscoveryURL, or JWKS URL"),
        ({"MaxTokenTTL": "-1ns"}, "invalid MaxTokenTTL value '-1ns' (should be between"),
        ({"MaxTokenTTL": "0s"}, "invalid MaxTokenTTL value '0s' (should be between 1m0s and 24h0m0s)"),
        ({"Config": {"ClockSkewLeeway": "x"}}, "is not a valid duration"),
    ],
)
async def test_a_wrong_login_method_is_refused(acl: Callers, changes: dict[str, Any], text: str) -> None:
    answer = await acl.put("/v1/acl/auth-method", {**METHOD, **changes})
    assert answer.status == 400 and text in answer.text, answer.text


async def test_there_is_one_default_method(acl: Callers) -> None:
    await acl.put("/v1/acl/auth-method", METHOD)
    answer = await acl.put("/v1/acl/auth-method", {**METHOD, "Name": "other"})
    assert (answer.status, answer.text) == (400, "default method already exists: ci")


async def test_a_login_method_whose_public_key_cannot_be_used_is_refused(acl: Callers) -> None:
    changes = {"Type": "JWT", "Config": {"JWTValidationPubKeys": ["-----BEGIN PUBLIC KEY-----"]}}
    answer = await acl.put("/v1/acl/auth-method", {**METHOD, **changes})
    assert answer.status == 400
    assert (
        "* invalid config: public key 0 cannot be used: it is neither a public key nor a certificate in PEM form"
        in answer.text
    )


async def test_a_binding_rule_is_stored_changed_and_deleted(acl: Callers) -> None:
    await acl.put("/v1/acl/auth-method", METHOD)
    body = {"AuthMethod": "ci", "BindType": "policy", "BindName": "ops", "Selector": 'value.team == "a"'}
    made = (await acl.put("/v1/acl/binding-rule", body)).json
    path = f"/v1/acl/binding-rule/{made['ID']}"
    changed = (await acl.put(path, {"ID": made["ID"], "Description": "d"})).json
    assert (changed["BindName"], changed["Selector"], changed["Description"]) == ("ops", "", "d")
    assert [each["ID"] for each in (await acl.get("/v1/acl/binding-rules")).json] == [made["ID"]]
    assert (await acl.call("DELETE", path)).status == 200
    assert (await acl.get(path)).text == "ACL binding rule not found"
    again = await acl.call("DELETE", path)
    assert (again.status, again.text) == (404, "ACL binding rule not found")
    method = await acl.call("DELETE", "/v1/acl/auth-method/none")
    assert (method.status, method.text) == (404, "ACL auth method not found")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"AuthMethod": "x", "BindType": "policy", "BindName": "ops"}, "ACL auth method x not found"),
        ({"BindType": "policy", "BindName": "ops"}, "auth method is missing"),
        ({"AuthMethod": "ci"}, "bind type is missing"),
        ({"AuthMethod": "ci", "BindType": "role"}, "bind name is missing"),
        ({"AuthMethod": "ci", "BindType": "management", "BindName": "x"}, "bind name should be empty"),
        ({"AuthMethod": "ci", "BindType": "x"}, 'unsupported bind type: "x"'),
        ({"AuthMethod": "ci", "BindType": "management", "Selector": "value.x =="}, "selector is invalid: failed to"),
    ],
)
async def test_a_wrong_binding_rule_is_refused(acl: Callers, body: dict[str, Any], text: str) -> None:
    answer = await acl.put("/v1/acl/binding-rule", body)
    assert answer.status == 400 and text in answer.text, answer.text


async def test_an_unknown_acl_route_does_not_exist(acl: Callers) -> None:
    assert (await acl.get("/v1/acl/nothing")).status == 404


async def test_a_token_that_is_revoked_during_a_blocking_query_gets_nothing(acl: Callers) -> None:
    await acl.policy("readers", 'namespace "default" { policy = "read" }')
    made = await acl.token("readers")
    waiters = acl.api.client.app[CONTEXT].waiters
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        waiting = group.create_task(acl.get("/v1/jobs?index=1&wait=20s", token=made["SecretID"]))
        while waiters._value == BLOCKING_MAX:  # noqa: ASYNC110 - the query waits behind HTTP
            await asyncio.sleep(0.01)
        assert (await acl.call("DELETE", f"/v1/acl/token/{made['AccessorID']}")).status == 200
        await acl.put("/v1/jobs", {"Job": job_document("web")})
    assert (waiting.result().status, waiting.result().text) == (403, "Permission denied")


async def test_a_list_shows_only_what_its_reader_may_see_when_it_wakes(acl: Callers) -> None:
    """The reader loses one of two namespaces while its query waits."""
    for name in ("prod", "dev"):
        assert (await acl.put(f"/v1/namespace/{name}", {"Name": name})).status == 200
        assert (await acl.put("/v1/jobs", {"Job": job_document("web", Namespace=name)})).status == 200
    both = 'namespace "prod" { policy = "read" }\nnamespace "dev" { policy = "read" }'
    await acl.policy("readers", both)
    secret = (await acl.token("readers"))["SecretID"]
    before = await acl.get("/v1/jobs?namespace=*", token=secret)
    waiters = acl.api.client.app[CONTEXT].waiters
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        path = f"/v1/jobs?namespace=*&index={before.headers['X-Nomad-Index']}&wait=20s"
        waiting = group.create_task(acl.get(path, token=secret))
        while waiters._value == BLOCKING_MAX:  # noqa: ASYNC110 - the query waits behind HTTP
            await asyncio.sleep(0.01)
        await acl.policy("readers", 'namespace "prod" { policy = "read" }')
        await acl.put("/v1/jobs", {"Job": job_document("late", Namespace="dev")})
        await acl.put("/v1/jobs", {"Job": job_document("late", Namespace="prod")})
    assert {job["Namespace"] for job in before.json} == {"prod", "dev"}
    answer = waiting.result()
    assert answer.status == 200 and {job["Namespace"] for job in answer.json} == {"prod"}


async def test_nothing_is_decided_while_the_state_is_not_there() -> None:
    settings = ServerConfig(name="test", acl=AclConfig(enabled=True))
    server = Server(settings, env=RealEnv(), log=MemoryLog())
    async with TestClient(TestServer(make_app(server.http, None, AgentInfo(name="test")))) as client:
        for path in ("/v1/jobs?stale", "/v1/agent/self"):
            async with client.get(path, headers={"X-Nomad-Token": str(uuid.uuid4())}) as answer:
                assert (answer.status, await answer.text()) == (
                    500, "this server still reads its state; try again in a moment",
                )  # fmt: skip


async def test_an_agent_without_a_server_decides_nothing() -> None:
    async with TestClient(TestServer(make_app(None, None, AgentInfo(name="test", acl_enabled=True)))) as client:
        for path, status in (("/v1/agent/self", 403), ("/v1/client/stats", 500), ("/v1/jobs", 500)):
            async with client.get(path) as answer:
                assert answer.status == status, path
    open_app = make_app(None, None, AgentInfo(name="test"))
    async with TestClient(TestServer(open_app)) as client, client.get("/v1/agent/self") as answer:
        assert answer.status == 200


async def test_long_policies_are_read_in_a_thread_and_once(acl: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        rules = "".join(f'namespace "team-{team}" {{ policy = "read" }}\n' for team in range(300))
        await acl.policy(f"long-{number}", f"# {number}\n{rules}")
    made = await acl.token("long-0", "long-1", "long-2")
    threads: list[bool] = []

    def counted(*args: Any, **options: Any) -> Policy:
        threads.append(threading.current_thread() is threading.main_thread())
        return parse_policy(*args, **options)

    monkeypatch.setattr(resolver, "parse_policy", counted)
    asked = [acl.get("/v1/jobs?namespace=team-1", token=made["SecretID"]) for _ in range(4)]
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 4
    assert threads == [False] * 3
