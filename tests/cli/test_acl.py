"""The commands on access control, against a real application that has it enabled."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from yurt.audit.settings import AuditSettings, AuditSinkSettings
from yurt.cli.commands.acl.answers import go_time
from yurt.cli.main import main
from yurt.server.config import AclConfig
from yurt.server.keys.method_secrets import opened_secrets
from yurt.testing.http_api import Api, job_document, serving

READ_PROD = 'namespace "prod" {\n  policy = "read"\n}\n'
CONFIG = {"OIDCDiscoveryURL": "https://id", "OIDCClientID": "c", "OIDCClientSecret": "hush", "OIDCScopes": ["a", "b"],
          "ClaimMappings": {"mail": "m", "/a/b": "n"}}  # fmt: skip


class Shell:
    """Commands with the token of somebody."""

    def __init__(self, api: Api, capsys: pytest.CaptureFixture[str]) -> None:
        self.api = api
        self.capsys = capsys
        self.token = ""

    async def run(self, *words: str, token: str | None = None) -> tuple[int, str, str]:
        """The exit code, standard output and standard error of `yurt acl ...`."""
        given = self.token if token is None else token
        flags = [f"-token={given}"] if given else []
        code = await asyncio.to_thread(main, ["acl", *words, *flags])
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err

    async def out(self, *words: str, token: str | None = None) -> str:
        """The output of a command that succeeds."""
        code, out, err = await self.run(*words, token=token)
        assert (code, err) == (0, "")
        return out

    async def facts(self, *words: str, token: str | None = None) -> dict[str, str]:
        """The `key = value` lines of a command that succeeds."""
        lines = (await self.out(*words, token=token)).splitlines()
        pairs = (line.split("=", 1) for line in lines if " = " in line)
        return {key.strip(): value.strip() for key, value in pairs}

    async def refusal(self, *words: str, token: str | None = None) -> str:
        """The one sentence of a command that fails."""
        code, out, err = await self.run(*words, token=token)
        assert (code, out) == (1, "") and err.endswith("\n")
        return err.partition("\nFor additional help")[0].strip()


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("NOMAD_TOKEN", "NOMAD_NAMESPACE", "NOMAD_REGION"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture
async def fresh(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Shell]:
    """An API with access control that nobody has bootstrapped."""
    async with serving(acl=AclConfig(enabled=True)) as api:
        environ.setenv("NOMAD_ADDR", f"http://127.0.0.1:{api.client.port}")
        yield Shell(api, capsys)


@pytest.fixture
async def acl(fresh: Shell) -> Shell:
    """The same, with commands that carry the first management token."""
    fresh.token = json.loads(await fresh.out("bootstrap", "-json"))["SecretID"]
    return fresh


@pytest.fixture
async def ops(acl: Shell, tmp_path: Path) -> Shell:
    """The same, with a policy `ops`."""
    (tmp_path / "ops.hcl").write_text(READ_PROD)
    await acl.out("policy", "apply", "-description=reads prod", "ops", str(tmp_path / "ops.hcl"))
    return acl


# Bootstrap, and refusals that every command explains.


async def test_bootstrap_prints_the_management_token(fresh: Shell) -> None:
    facts = await fresh.facts("bootstrap")
    assert list(facts) == [
        "Accessor ID", "Secret ID", "Name", "Type", "Global", "Create Time", "Expiry Time", "Create Index",
        "Modify Index", "Policies", "Roles",
    ]  # fmt: skip
    assert {name: facts[name] for name in ("Name", "Type", "Global", "Expiry Time", "Policies", "Roles")} == {
        "Name": "Bootstrap Token", "Type": "management", "Global": "true", "Expiry Time": "<none>",
        "Policies": "n/a", "Roles": "n/a",
    }  # fmt: skip
    assert facts["Create Time"].endswith(" +0000 UTC") and "T" not in facts["Create Time"].removesuffix("UTC")
    assert (await fresh.refusal("bootstrap")).startswith("Error: ACL bootstrap already done (reset index: ")
    assert (await fresh.facts("token", "self", token=facts["Secret ID"])) == facts


async def test_bootstrap_takes_the_secret_of_a_file(fresh: Shell, tmp_path: Path) -> None:
    path, secret = tmp_path / "secret", str(uuid.uuid4())
    path.write_text(" \n")
    refusal = f"{path}: holds no secret id; a secret id is a UUID, such as `uuidgen` prints"
    assert await fresh.refusal("bootstrap", str(path)) == refusal
    path.write_text("hunter2\n")
    assert await fresh.refusal("bootstrap", str(path)) == refusal
    path.write_text(f"{secret}\n")
    assert await fresh.out("bootstrap", "-t", "{{.SecretID}}", str(path)) == f"{secret}\n"


@pytest.mark.parametrize("words", ["bootstrap", "policy list", "token list", "role list", "auth-method list"])
async def test_access_control_that_is_off_is_said(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    async with serving() as api:
        environ.setenv("NOMAD_ADDR", f"http://127.0.0.1:{api.client.port}")
        said = await Shell(api, capsys).refusal(*words.split())
    assert said.splitlines() == [
        "Error: ACL support disabled: the agent runs without access control",
        "Turn it on with acl { enabled = true }, or try it out: yurt agent -dev -acl",
    ]


async def test_a_denial_says_whether_a_token_was_given(ops: Shell) -> None:
    none = "Error: Permission denied: no token was given; see -token and NOMAD_TOKEN"
    assert await ops.refusal("token", "list", token="") == none
    weak = "Error: Permission denied: the token lacks this right, has expired or was revoked"
    assert await ops.refusal("token", "list", token=str(uuid.uuid4())) == weak
    made = await ops.facts("token", "create", "-policy=ops")
    assert await ops.refusal("role", "create", "-name=r", "-policy=ops", token=made["Secret ID"]) == weak


async def test_other_commands_say_whether_a_token_was_given(acl: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(main, ["node", "status"]) == 1
    denied, hint = capsys.readouterr().err.splitlines()
    assert denied == "Error: Permission denied" and hint.startswith("No token was given; where access control is on")

    assert await asyncio.to_thread(main, ["node", "status", f"-token={uuid.uuid4()}"]) == 1
    denied, hint = capsys.readouterr().err.splitlines()
    assert denied == "Error: Permission denied" and hint.startswith("The token lacks this right, has expired")


async def test_json_and_a_template_together_are_refused(acl: Shell) -> None:
    said = await acl.refusal("policy", "list", "-json", "-t", "{{.}}")
    assert said.startswith("Both json and template formatting are not allowed")


# Policies.


async def test_a_policy_is_written_shown_listed_and_deleted(ops: Shell) -> None:
    lines = (await ops.out("policy", "info", "ops")).splitlines()
    assert lines[:2] == ["Name        = ops", "Description = reads prod"]
    assert lines[4:] == ["", "Rules", *READ_PROD.splitlines()]
    assert await ops.out("policy", "list") == "Name  Description\nops   reads prod\n"
    assert json.loads(await ops.out("policy", "info", "-json", "ops"))["Rules"] == READ_PROD
    assert await ops.out("policy", "list", "-t", "{{range .}}{{.Name}};{{end}}") == "ops;\n"
    assert await ops.out("policy", "delete", "ops") == "Successfully deleted ops policy!\n"
    assert await ops.out("policy", "list") == "No policies found\n"
    assert await ops.refusal("policy", "info", "ops") == "Error: ACL policy not found"


async def test_a_policy_is_attached_to_a_job(acl: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "p.hcl"
    path.write_text(READ_PROD)
    apply = ("policy", "apply", "p", str(path))
    monkeypatch.setenv("NOMAD_NAMESPACE", "prod")
    for flags, missing, given in (
        (["-job=web"], "namespace", "job"), (["-namespace=prod"], "job", "namespace"),
        (["-namespace=prod", "-job=web", "-task=t"], "group", "task"), (["-group=g"], "job", "group"),
    ):  # fmt: skip
        assert await acl.refusal(*apply, *flags) == f"-{missing} is required if -{given} is set"
    assert await acl.out(*apply, "-namespace=prod", "-job=web", "-group=g") == 'Successfully wrote "p" ACL policy!\n'
    lines = (await acl.out("policy", "info", "p")).splitlines()
    assert lines[5:10] == [
        "Associated Workload",
        "Namespace = prod",
        "JobID     = web",
        "Group     = g",
        "Task      = <none>",
    ]


async def test_mistakes_of_a_policy_are_listed_with_their_places_in_the_file(acl: Shell, tmp_path: Path) -> None:
    path = tmp_path / "p.hcl"
    path.write_text('namespace "a" { policy = "raed" }\n')
    said = await acl.refusal("policy", "apply", "p", str(path))
    assert said.startswith(f"Error: the policy is not valid: {path}:1:26: ") and "\n" not in said
    path.write_text('namespace "a" { policy = "raed" }\nnods { policy = "read" }\n')
    first, *others = (await acl.refusal("policy", "apply", "a_b", str(path))).splitlines()
    assert first == "Error: the policy is not valid:"
    assert others[0] == "  - invalid name 'a_b'; a name has 1 to 128 letters, digits and dashes"
    assert {line.split(" ")[3] for line in others[1:]} == {f"{path}:1:26:", f"{path}:2:1:"}
    said = await acl.refusal("policy", "apply", "p", str(tmp_path / "none"))
    assert said == f"{tmp_path}/none: there is no such file"


async def test_own_policies_are_shown_with_their_workloads(ops: Shell, tmp_path: Path) -> None:
    await ops.out("policy", "apply", "-namespace=prod", "-job=web", "web", str(tmp_path / "ops.hcl"))
    made = await ops.facts("token", "create", "-policy=ops", "-policy=web")
    shown = (await ops.out("policy", "self", token=made["Secret ID"])).splitlines()
    assert shown[0].split() == ["Name", "Job", "ID", "Group", "Name", "Task", "Name"]
    assert shown[1].split() == ["ops", *["<unavailable>"] * 3]
    assert shown[2].split() == ["web", "web", "<not", "specified>", "<not", "specified>"]
    management = "This is a management token. No individual policies are assigned.\n"
    assert await ops.out("policy", "self") == management
    await ops.out("policy", "delete", "ops")
    await ops.out("policy", "delete", "web")
    assert await ops.out("policy", "self", token=made["Secret ID"]) == "No policies found.\n"


# Tokens.


async def test_a_token_is_made_shown_listed_changed_and_revoked(ops: Shell) -> None:
    await ops.out("role", "create", "-name=web", "-policy=ops")
    made = await ops.facts("token", "create", "-name=ci", "-policy=ops", "-role-name=web", "-ttl=30m")
    assert (made["Name"], made["Type"], made["Global"], made["Policies"]) == ("ci", "client", "false", "[ops]")
    assert made["Expiry Time"].endswith(" +0000 UTC")
    accessor, secret = made["Accessor ID"], made["Secret ID"]
    assert (await ops.facts("token", "info", accessor[:9]))["Secret ID"] == "<not shown>"
    lines = (await ops.out("token", "info", accessor, token=secret)).splitlines()
    assert lines[1] == f"Secret ID    = {secret}" and lines[-3] == "Roles" and lines[-1].endswith("  web")
    listed = (await ops.out("token", "list")).splitlines()
    assert listed[0].split("  ")[0] == "Name" and listed[2].split() == ["ci", "client", "false", accessor, "false"]
    changed = await ops.facts("token", "update", "-name=ci2", accessor)
    assert changed | {"Modify Index": "", "Secret ID": ""} == made | {
        "Name": "ci2", "Modify Index": "", "Secret ID": "",
    }  # fmt: skip
    assert (await ops.facts("token", "update", "-policy=a", "-policy=b", accessor))["Policies"] == "[a b]"
    assert (await ops.facts("token", "self", token=secret))["Policies"] == "[a b]"
    assert await ops.out("token", "delete", accessor) == f"Token {accessor} successfully deleted\n"
    assert await ops.refusal("token", "info", accessor) == "Error: ACL token not found"
    assert (
        await ops.refusal("token", "info", accessor[:8]) == f'No ACL token(s) with prefix or id "{accessor[:8]}" found'
    )


async def test_the_name_of_a_management_token_is_changed(acl: Shell) -> None:
    before = await acl.facts("token", "self")
    after = await acl.facts("token", "update", "-name=root", before["Accessor ID"])
    changed = {"Name": "root", "Secret ID": "<not shown>", "Modify Index": after["Modify Index"]}
    assert after == before | changed
    assert (await acl.facts("token", "self"))["Name"] == "root"


def test_an_expired_token_is_listed_as_one(api: Any, run: Any) -> None:
    token = {"Name": "n", "Type": "client", "Global": False, "AccessorID": "a"}
    times = ("2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z", None)
    api.answers["/v1/acl/tokens"] = [token | {"ExpirationTime": time} for time in times]
    assert [line.split()[-1] for line in run("acl", "token", "list")[1].splitlines()[1:]] == ["true", "false", "false"]
    api.answers["/v1/acl/tokens"] = lambda query: []
    assert run("acl", "token", "list")[1] == "No tokens found\n"


async def test_a_token_without_rights_is_refused_in_one_sentence(acl: Shell) -> None:
    said = await acl.refusal("token", "create")
    error, advice = said.splitlines()
    assert error == "Error: the token is not valid: client token missing policies or roles"
    assert advice == "Give -policy or -role-name, or make a management token: -type=management"
    assert "-ttl: " in await acl.refusal("token", "create", "-type=management", "-ttl=soon")


async def test_a_policy_that_is_not_there_yet_is_named(acl: Shell) -> None:
    code, out, err = await acl.run("token", "create", "-policy=later")
    problem, consequence = err.splitlines()
    assert (code, problem) == (0, "Error fetching info on later policy: ACL policy not found")
    assert consequence.startswith("The token has no rights from it before it is made")
    assert "Policies     = [later]" in out and out.endswith("\nRoles\n<none>\n")


async def test_a_token_may_be_brought_along(ops: Shell, tmp_path: Path) -> None:
    path, accessor, secret = tmp_path / "secret", str(uuid.uuid4()), str(uuid.uuid4())
    path.write_text(secret)
    together = await ops.refusal("token", "create", "-policy=ops", f"-accessor={accessor}")
    assert together.startswith("-accessor and a file with the secret id")
    assert await ops.refusal("token", "create", "-policy=ops", str(path)) == together
    made = await ops.facts("token", "create", "-policy=ops", f"-accessor={accessor}", str(path))
    assert (made["Accessor ID"], made["Secret ID"]) == (accessor, secret)


async def test_self_needs_a_token(acl: Shell) -> None:
    said = await acl.refusal("token", "self", token="")
    assert said.startswith("No token present in the environment or set via the CLI flag")


def test_a_workload_identity_is_led_to_its_policies(api: Any, run: Any) -> None:
    api.answers["/v1/acl/policy/self"] = [{"Name": "p"}]
    code, out, _ = run("acl", "token", "self", "-token=e.y.j")
    assert code == 0 and out.endswith("yurt acl policy self\n")
    api.answers["/v1/acl/policy/self"] = lambda query: []
    code, _, err = run("acl", "token", "self", "-token=e.y.j")
    assert (code, err) == (1, "No ACL tokens, nor ACL policies attached to a workload identity found.\n")


def test_a_prefix_of_several_ids_is_refused_with_them(api: Any, run: Any) -> None:
    ids = [f"aabb{number}" for number in (1, 2)]
    api.answers["/v1/acl/roles"] = [{"ID": each} for each in ids]
    assert run("acl", "role", "delete", "aabb") == (1, "", "Prefix matched multiple ACL roles: aabb1, aabb2\n")
    assert run("acl", "role", "delete", "a")[2].startswith("Identifier must contain at least two characters.\n")
    assert run("acl", "role", "delete", "web")[2] == 'No ACL role(s) with prefix or id "web" found\n'
    assert {method for method, *_ in api.asked} == {"GET"}


def test_times_are_printed_as_go_prints_them() -> None:
    assert go_time("2026-01-02T15:04:05.9Z") == "2026-01-02 15:04:05.9 +0000 UTC"
    assert go_time(None) == go_time("0001-01-01T00:00:00Z") == "<none>"


# Roles.


async def test_a_role_is_made_shown_listed_changed_and_deleted(ops: Shell, tmp_path: Path) -> None:
    await ops.out("policy", "apply", "dev", str(tmp_path / "ops.hcl"))
    made = await ops.facts("role", "create", "-name=web", "-description=d", "-policy=ops")
    assert list(made) == ["ID", "Name", "Description", "Policies", "Create Index", "Modify Index"]
    assert await ops.facts("role", "info", made["ID"][:8]) == made == await ops.facts("role", "info", "-by-name", "web")
    assert json.loads(await ops.out("role", "info", "-json", made["ID"]))["Policies"] == [{"Name": "ops"}]
    changed = await ops.facts("role", "update", "-policy=dev", "-description=e", made["ID"])
    assert (changed["Name"], changed["Description"], changed["Policies"]) == ("web", "e", "dev,ops")
    assert (await ops.out("role", "list")).splitlines()[1].split() == [made["ID"], "web", "e", "dev,ops"]
    whole = await ops.facts("role", "update", "-no-merge", "-name=web2", "-policy=dev", made["ID"])
    assert (whole["Name"], whole["Description"], whole["Policies"]) == ("web2", "<none>", "dev")
    assert await ops.out("role", "delete", made["ID"]) == f"ACL role {made['ID']} successfully deleted\n"
    assert await ops.out("role", "list") == "No ACL roles found\n"


async def test_a_wrong_role_is_refused(ops: Shell) -> None:
    assert await ops.refusal("role", "create", "-policy=ops") == (
        "ACL role name must be specified using the -name flag"
    )
    assert await ops.refusal("role", "create", "-name=a") == (
        "At least one policy name must be specified using the -policy flag"
    )
    assert await ops.refusal("role", "create", "-name=a", "-policy=x") == "Error: cannot find policy x"
    assert (await ops.refusal("role", "update", "aabb")).startswith("Please provide at least one flag")


# Login methods and binding rules.


@pytest.fixture
async def method(ops: Shell, tmp_path: Path) -> Shell:
    """The same, with a login method `ci`."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    await ops.out(
        "auth-method", "create", "-name=ci", "-type=OIDC", "-token-locality=local", "-max-token-ttl=1h", "-default",
        f"-config=@{tmp_path}/config.json",
    )  # fmt: skip
    return ops


async def test_a_login_method_is_shown_and_listed(method: Shell) -> None:
    facts = await method.facts("auth-method", "info", "ci")
    assert {name: facts[name] for name in ("Name", "Type", "Locality", "Max Token TTL", "Default")} == {
        "Name": "ci", "Type": "OIDC", "Locality": "local", "Max Token TTL": "1h0m0s", "Default": "true",
    }  # fmt: skip
    assert facts["OIDC Client Secret"] == "redacted" and facts["OIDC Scopes"] == "a,b"
    assert facts["Claim mappings"] == "{/a/b: n}; {mail: m}"
    assert "\n\nAuth Method Config\nJWT Validation Public Keys" in await method.out("auth-method", "info", "ci")
    assert await method.out("auth-method", "list") == "Name  Type  Default\nci    OIDC  true\n"


async def test_an_update_of_a_login_method_keeps_its_secret_and_what_no_flag_names(method: Shell) -> None:
    changed = await method.facts("auth-method", "update", "-max-token-ttl=2h", "ci")
    assert (changed["Max Token TTL"], changed["Default"], changed["OIDC Client ID"]) == ("2h0m0s", "true", "c")
    stored = method.api.server.state.acl_auth_methods["ci"]
    assert opened_secrets(method.api.server.keys.keyring, stored).client_secret == "hush"
    assert (await method.facts("auth-method", "update", "-default=false", "ci"))["Default"] == "false"
    assert await method.refusal("auth-method", "update", "-default", "none") == "Error: ACL auth-method not found"


async def test_a_login_method_is_deleted(method: Shell) -> None:
    assert await method.out("auth-method", "delete", "ci") == "ACL auth method ci successfully deleted\n"
    assert await method.out("auth-method", "list") == "No ACL auth methods found\n"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-name=a", "-type=JWT"], "A login method needs -token-locality, -max-token-ttl, -config"),
        (["-config={"], "-config: not valid JSON: "),
        (["-config=[]"], "-config: the configuration of a login method is a JSON object"),
        (["-config=@none"], "none: there is no such file"),
        (["-max-token-ttl=soon"], "-max-token-ttl: "),
        ([], "Error: the auth method is not valid: invalid config: missing OIDCDiscoveryURL"),
    ],
)
async def test_a_wrong_login_method_is_refused(acl: Shell, flags: list[str], said: str) -> None:
    whole = ["-name=a", "-type=OIDC", "-token-locality=local", "-max-token-ttl=1h", '-config={"OIDCClientID": "c"}']
    given = flags if "-type=JWT" in flags else [*whole, *flags]
    assert (await acl.refusal("auth-method", "create", *given)).startswith(said)


async def test_a_binding_rule_is_made_shown_listed_changed_and_deleted(method: Shell) -> None:
    made = await method.facts(
        "binding-rule", "create", "-auth-method=ci", "-bind-type=policy", "-bind-name=ops",
        '-selector=value.team == "a"',
    )  # fmt: skip
    assert list(made) == [
        "ID", "Description", "Auth Method", "Selector", "Bind Type", "Bind Name", "Create Time", "Modify Time",
        "Create Index", "Modify Index",
    ]  # fmt: skip
    assert made["Selector"] == r'"value.team == \"a\""'
    assert await method.facts("binding-rule", "info", made["ID"][:8]) == made
    changed = await method.facts("binding-rule", "update", "-description=d", made["ID"])
    assert (changed["Description"], changed["Selector"], changed["Bind Name"]) == ("d", made["Selector"], "ops")
    whole = await method.facts("binding-rule", "update", "-no-merge", "-bind-type=role", "-bind-name=web", made["ID"])
    assert (whole["Description"], whole["Selector"], whole["Bind Type"]) == ("<none>", '""', "role")
    assert (await method.out("binding-rule", "list")).splitlines()[1].split() == [made["ID"], "<none>", "ci"]
    deleted = await method.out("binding-rule", "delete", made["ID"])
    assert deleted == f"ACL binding rule {made['ID']} successfully deleted\n"
    assert await method.out("binding-rule", "list") == "No ACL binding rules found\n"


async def test_a_wrong_binding_rule_is_refused(method: Shell) -> None:
    create = ("binding-rule", "create")
    assert "-auth-method flag" in await method.refusal(*create, "-bind-type=policy")
    assert "-bind-type flag" in await method.refusal(*create, "-auth-method=ci")
    said = await method.refusal(*create, "-auth-method=ci", "-bind-type=policy")
    assert said == "Error: the binding rule is not valid: bind name is missing"
    assert "at least one flag" in await method.refusal("binding-rule", "update", "aabb")


# Explanations, lint and suggestions.


async def test_explain_names_the_policy_and_the_rule(ops: Shell) -> None:
    token = json.loads(await ops.out("token", "create", "-policy=ops", "-name=ci", "-json"))
    accessor = token["AccessorID"]
    code, out, err = await ops.run("explain", accessor[:8], "read-job", "-namespace=prod")
    assert (code, err, out.splitlines()[0]) == (0, "", "Allowed")
    assert 'read-job: namespace "prod" { policy = "read" } (policy "ops", line 2)' in out
    code, out, _ = await ops.run("explain", accessor, "PUT", "/v1/job/web/scale?namespace=prod")
    assert (code, out.splitlines()[0]) == (2, "Not allowed")
    assert "PUT/POST /v1/job/{job_id}/scale" in out
    assert "scale-job or submit-job is not granted for namespace" in out
    code, out, _ = await ops.run("explain", accessor, "PUT", "/v1/jobs?namespace=prod")
    assert (
        (code, out.splitlines()[0]) == (2, "Not allowed") and "namespace prod" in out and "no namespace is" not in out
    )
    found = json.loads((await ops.run("explain", "-json", accessor, "read-job", "-namespace=prod"))[1])
    assert found["Rules"] == [{"Policy": "ops", "Line": 2, "Column": 3, "Text": 'namespace "prod" { policy = "read" }'}]
    assert (found["Token"]["Name"], found["Token"]["Policies"]) == ("ci", ["ops"])


async def test_explain_names_the_policies_of_a_token_that_do_not_exist(ops: Shell) -> None:
    token = json.loads(await ops.out("token", "create", "-policy=ops", "-json"))
    await ops.out("policy", "delete", "ops")
    code, out, _ = await ops.run("explain", token["AccessorID"], "read-job", "-namespace=prod")
    assert code == 2 and re.search(r'Problem += its policy "ops" does not exist\n', out)


async def test_everybody_may_explain_the_own_token_and_management_every_one(ops: Shell) -> None:
    own = json.loads(await ops.out("token", "create", "-policy=ops", "-json"))
    other = json.loads(await ops.out("token", "create", "-policy=ops", "-json"))
    secret = own["SecretID"]
    code, out, _ = await ops.run("explain", "self", "list-jobs", "-namespace=prod", token=secret)
    assert (code, out.splitlines()[0]) == (0, "Allowed")
    assert (await ops.run("explain", own["AccessorID"], "node:read", token=secret))[0] == 2
    refusal = await ops.refusal("explain", other["AccessorID"], "node:read", token=secret)
    assert refusal.startswith("Error: Permission denied")
    missing = await ops.refusal("explain", str(uuid.UUID(int=7)), "node:read", token=secret)
    assert missing == refusal
    assert "by its accessor id" in await ops.refusal("explain", str(uuid.UUID(int=7)), "node:read")
    assert "a management token may do everything" in await ops.out("explain", "self", "management")


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (("submit-jobs",), '"submit-jobs" is not a right; did you mean "submit-job"?'),
        (("PUT", "/v1/none"), '"/v1/none" is not a path of the API'),
        (("PATCH", "/v1/jobs"), "Invalid method"),
        (("GET", "/v1/job/"), "Missing job ID"),
    ],
)
async def test_an_action_that_there_is_not_is_said(acl: Shell, action: tuple[str, ...], told: str) -> None:
    assert told in await acl.refusal("explain", "self", *action)


async def test_an_object_without_a_place_is_said(ops: Shell) -> None:
    own = json.loads(await ops.out("token", "create", "-policy=ops", "-json"))["SecretID"]
    out = await ops.out("explain", "self", "GET", f"/v1/allocation/{uuid.UUID(int=1)}", token=own)
    assert "no namespace is named: allowed means in some place" in out


async def test_lint_compares_names_with_those_of_the_servers(acl: Shell, tmp_path: Path) -> None:
    path = tmp_path / "p.hcl"
    path.write_text('namespace "defualt" {\n  policy = "read"\n  capabilities = ["read-job"]\n}\n')
    unknown = f'{path}:1:11: warning: there is no namespace "defualt" now Did you mean "default"? [unknown-name]\n'
    redundant = f'{path}:3:19: warning: "read-job" says nothing new: level "read" in line 2 includes it [redundant]\n'
    assert await acl.run("lint", str(path)) == (1, unknown + redundant, "")
    assert (await acl.run("lint", "-offline", str(path)))[:2] == (1, redundant)
    # Who may not see all names would take some for unknown.
    assert (await acl.run("lint", str(path), token=str(uuid.uuid4())))[:2] == (1, redundant)
    (found, _) = json.loads((await acl.run("lint", "-json", str(path)))[1])
    assert (found["File"], found["Line"], found["Code"]) == (str(path), 1, "unknown-name")


async def test_lint_tells_mistakes_of_the_language_and_has_three_exit_codes(acl: Shell, tmp_path: Path) -> None:
    path = tmp_path / "p.hcl"
    path.write_text('namespace "default" { policy = "raed" }\n')
    code, out, _ = await acl.run("lint", "-offline", str(path))
    assert (code, out.startswith(f"{path}:1:32: error: Invalid namespace policy: ")) == (1, True)
    path.write_text('namespace "default" { policy = "read" }\n')
    assert await acl.run("lint", str(path)) == (0, "", "")
    assert (await acl.run("lint", str(tmp_path / "none.hcl")))[0] == 2
    assert (await acl.run("lint"))[0] == 2


async def test_the_suggested_policy_allows_what_a_token_did_and_no_more(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "audit.log"
    settings = AuditSettings(sinks=(AuditSinkSettings(name="audit", path=str(log)),))
    async with serving(acl=AclConfig(enabled=True), audit=settings) as api:
        environ.setenv("NOMAD_ADDR", f"http://127.0.0.1:{api.client.port}")
        shell = Shell(api, capsys)
        shell.token = json.loads(await shell.out("bootstrap", "-json"))["SecretID"]
        made = json.loads(await shell.out("token", "create", "-type=management", "-name=ci", "-json"))
        headers = {"X-Nomad-Token": made["SecretID"]}
        await api.call("PUT", "/v1/jobs", {"Job": job_document("web")}, headers=headers)
        variable = {"Path": "app/db", "Items": {"a": "b"}}
        work = [
            ("PUT", "/v1/jobs", {"Job": job_document("web", Priority=60)}), ("GET", "/v1/job/web", None),
            ("GET", "/v1/jobs", None), ("PUT", "/v1/var/app/db", variable), ("GET", "/v1/var/app/db", None),
            ("GET", "/v1/nodes", None), ("GET", "/v1/namespaces", None), ("GET", "/v1/status/leader", None),
        ]  # fmt: skip
        for method, path, body in work:
            assert (await api.call(method, path, body, headers=headers)).status == 200, path
        (tmp_path / "ci.hcl").write_text(await suggested(shell, log, made["AccessorID"]))
        await shell.out("policy", "apply", "ci", str(tmp_path / "ci.hcl"))
        client = json.loads(await shell.out("token", "create", "-policy=ci", "-json"))
        headers = {"X-Nomad-Token": client["SecretID"]}
        for method, path, body in work:
            assert (await api.call(method, path, body, headers=headers)).status == 200, path
        for method, path in (("DELETE", "/v1/var/app/db"), ("GET", "/v1/vars?prefix=x"), ("DELETE", "/v1/job/web")):
            answer = await api.call(method, path, headers=headers)
            assert answer.status == 403 or answer.text == "[]", path


async def suggested(shell: Shell, log: Path, accessor_id: str) -> str:
    """The policy for what a token did, without its comments."""
    several = await asyncio.to_thread(main, ["acl", "policy", "suggest", f"-from-audit={log}"])
    assert (several, "choose one with -accessor" in shell.capsys.readouterr().err) == (1, True)
    words = ["acl", "policy", "suggest", f"-from-audit={log}", f"-accessor={accessor_id[:12]}"]
    code = await asyncio.to_thread(main, words)
    out = shell.capsys.readouterr().out
    assert code == 0, out
    return "".join(line for line in out.splitlines(keepends=True) if not line.startswith("#"))


async def test_what_no_policy_can_grant_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:  # fmt: skip
    def line(need: str, route: str, **others: Any) -> str:
        asked = {"operation": "GET", "endpoint": route, "namespace": {"id": "default"}}
        payload = {
            "stage": "OperationComplete", "auth": {"accessor_id": "a1"}, "request": asked,
            "decisions": [{"need": need, "allowed": True}], "response": {"result": "allowed"}, **others,
        }  # fmt: skip
        return json.dumps({"payload": payload}) + "\n"

    log = tmp_path / "audit.log"
    log.write_text(
        line("management", "/v1/acl/tokens") + line("read-job", "/v1/allocation/x")
        + line("node:read", "/v1/nodes", decisions_omitted=3)
    )  # fmt: skip
    assert main(["acl", "policy", "suggest", f"-from-audit={log}", "-json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "AccessorID": "a1", "Requests": 3, "Policy": 'node {\n  policy = "read"\n}\n',
        "Problems": [
            "no policy can grant this: management",
            "not covered, because nobody found the object: GET /v1/allocation/x",
            "not covered: 3 decisions that the log left out",
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["{}", "hello", '{"payload": {"stage": "OperationComplete"}}', "[1]", '{"payload": 7}']
)
def test_a_file_that_is_no_audit_log_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(f"\n{text}\n")
    assert main(["acl", "policy", "suggest", f"-from-audit={tmp_path / 'log'}"]) == 1
    assert "line 2: it is not a line of an audit log" in capsys.readouterr().err
