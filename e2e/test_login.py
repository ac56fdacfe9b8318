"""Logins on a real agent, through a certified OIDC provider (npm's oidc-provider) and `yurt login`."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import playwright
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from playwright.sync_api import sync_playwright
from yurt.testing.agent import Agent, dev_token, free_ports, wait_for

HERE = Path(__file__).parent / "oidc"
CLAIMS = {
    "alice": {"name": "Alice", "team": "web", "groups": ["ops"]},
    "bert": {"name": "Bert", "team": "db", "groups": []},
}
INSTALL_S = 300
CHROMIUM = "/usr/bin/chromium"
NODE = Path(playwright.__file__).parent / "driver" / "node"
"""Playwright brings the current node along; Debian's is older than the provider supports."""


class Provider:
    """The process of the provider, which makes new signing keys at each start."""

    def __init__(self, folder: Path, port: int) -> None:
        self.issuer = f"http://localhost:{port}"
        self.config: dict[str, Any] = {}
        self._folder = folder
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait for its discovery document."""
        command = [str(NODE), "provider.js", str(self._port), json.dumps(self.config)]
        with (self._folder / "provider.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT)
        self._process = process
        wait_for("the provider", lambda: answers(self.issuer) or process.poll() is not None)
        assert process.poll() is None, (self._folder / "provider.log").read_text()

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=30)


class Site(NamedTuple):
    """An agent, its provider, and the key of one of the provider's clients."""

    agent: Agent
    provider: Provider
    issuer: str
    pem: str
    redirect: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A dev agent with access control; skips where the provider cannot be installed."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed (Debian package npm)")
    folder = tmp_path_factory.mktemp("oidc")
    shutil.copytree(HERE, folder, dirs_exist_ok=True)
    command = ["npm", "install", "--prefer-offline", "--no-audit", "--no-fund", "--no-package-lock"]
    installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if installed.returncode:
        pytest.skip(f"oidc-provider cannot be fetched: {installed.stderr.strip().splitlines()[-1]}")
    port, callback = free_ports(2)
    agent = Agent(tmp_path_factory.mktemp("login"), data_dir=None)
    agent.flags = ("-acl",)
    agent.spawn()
    provider = Provider(folder, port)
    try:
        agent.token = dev_token(agent)
        key = rsa.generate_private_key(65537, 2048)
        made = Site(
            agent, provider, provider.issuer,
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            f"http://localhost:{callback}/oidc/callback",
        )  # fmt: skip
        provider.config = {"clients": clients(made, key), "claims": CLAIMS}
        provider.start()
        yield made
    finally:
        agent.interrupt()
        provider.stop()


def answers(issuer: str) -> bool:
    try:
        with urllib.request.urlopen(f"{issuer}/.well-known/openid-configuration", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def clients(site: Site, key: rsa.RSAPrivateKey) -> list[dict[str, Any]]:
    """Clients that prove who they are in each way."""
    numbers = key.public_key().public_numbers()
    n, e = (base64.urlsafe_b64encode(v.to_bytes((v.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()
            for v in (numbers.n, numbers.e))  # fmt: skip
    pages = f"{site.agent.address}/ui/sign-in"
    common = {
        "redirect_uris": [site.redirect, pages],
        "grant_types": ["authorization_code"],
        "response_types": ["code"],
    }
    jwk = {"kty": "RSA", "kid": "client-key", "use": "sig", "alg": "RS256", "n": n, "e": e}
    by_key = {"token_endpoint_auth_method": "private_key_jwt", "token_endpoint_auth_signing_alg": "RS256"}
    return [
        {**common, "client_id": "public", "token_endpoint_auth_method": "none"},
        {**common, "client_id": "secret", "client_secret": "s" * 40},
        {**common, "client_id": "hmac", "client_secret": "s" * 40, "token_endpoint_auth_method": "client_secret_jwt"},
        {**common, "client_id": "key", "jwks": {"keys": [jwk]}, **by_key},
        {**common, "client_id": "nomad", "jwks_uri": f"{site.agent.address}/.well-known/jwks.json", **by_key},
    ]


def method(site: Site, name: str, **config: Any) -> None:
    """A login method for the client of that name, with a rule for the team `web`."""
    agent = site.agent
    fixed = {
        "OIDCDiscoveryURL": site.issuer, "OIDCClientID": name, "OIDCEnablePKCE": True, "OIDCScopes": ["profile"],
        "AllowedRedirectURIs": [site.redirect, f"{agent.address}/ui/sign-in"],
        "ClaimMappings": {"team": "team", "name": "name"}, "ListClaimMappings": {"groups": "groups"},
    }  # fmt: skip
    body = {"Name": name, "Type": "OIDC", "TokenLocality": "local", "MaxTokenTTL": "10m",
            "TokenNameFormat": "${value.name} by ${auth_method_name}", "Config": {**fixed, **config}}  # fmt: skip
    agent.call("PUT", "/v1/acl/policy/web", {"Name": "web", "Rules": 'namespace "default" { policy = "write" }'})
    agent.call("PUT", "/v1/acl/auth-method", body)
    rule = {"AuthMethod": name, "BindType": "policy", "BindName": "${value.team}", "Selector": '"ops" in list.groups'}
    agent.call("PUT", "/v1/acl/binding-rule", rule)


def log_in(site: Site, name: str, user: str) -> subprocess.CompletedProcess[str]:
    """`yurt login` of a user whose browser is a program."""
    callback = site.redirect.removeprefix("http://").partition("/")[0]
    command = [*site.agent.command, "login", f"-method={name}", f"-oidc-callback-addr={callback}", "-json"]
    environment = {
        **os.environ, "NOMAD_ADDR": site.agent.address, "USER_NAME": user,
        "BROWSER": f"{sys.executable} {HERE / 'browser.py'} %s",
    }  # fmt: skip
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


ASSERTIONS: dict[str, Any] = {
    "public": {},
    "secret": {"OIDCClientSecret": "s" * 40},
    "hmac": {"OIDCClientSecret": "s" * 40, "OIDCClientAssertion": {"KeySource": "client_secret"}},
    "key": {"OIDCClientAssertion": {"KeySource": "private_key", "PrivateKey": {"KeyID": "client-key"}}},
    "nomad": {"OIDCClientAssertion": {"KeySource": "nomad"}},
}


@pytest.mark.parametrize("name", ASSERTIONS)
def test_a_user_logs_in_however_the_client_proves_who_it_is(site: Site, name: str) -> None:
    config = json.loads(json.dumps(ASSERTIONS[name]))
    if name == "key":
        config["OIDCClientAssertion"]["PrivateKey"]["PemKey"] = site.pem
    method(site, name, **config)
    done = log_in(site, name, "alice")
    assert done.returncode == 0, done.stderr
    token = json.loads(done.stdout)
    assert (token["Name"], token["Policies"], token["ExpirationTTL"]) == (f"Alice by {name}", ["web"], "10m0s")
    assert site.agent.get("/v1/jobs", token=token["SecretID"]) == []
    assert site.agent.get("/v1/acl/token/self", token=token["SecretID"])["AccessorID"] == token["AccessorID"]


def test_a_user_without_the_group_gets_no_token(site: Site) -> None:
    method(site, "public")
    done = log_in(site, "public", "bert")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("Error performing login: no role or policy bindings matched\n")


def test_a_client_with_a_wrong_secret_gets_no_token(site: Site) -> None:
    method(site, "secret", OIDCClientSecret="wrong" * 8)
    done = log_in(site, "secret", "alice")
    assert done.returncode == 1 and done.stderr.endswith("refused the code: invalid_client\n")
    assert "wrong" not in done.stderr + site.agent.log.read_text()


def test_a_token_for_another_audience_is_refused(site: Site) -> None:
    method(site, "public", BoundAudiences=["another-client"])
    done = log_in(site, "public", "alice")
    assert (done.returncode, done.stdout) == (1, "")
    assert "unable to validate provided token: " in done.stderr and "invalid audience" in done.stderr


def test_new_keys_of_the_provider_count_at_once(site: Site) -> None:
    method(site, "public")
    assert log_in(site, "public", "alice").returncode == 0
    site.provider.stop()
    site.provider.start()
    done = log_in(site, "public", "alice")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="Debian's chromium is not installed")
def test_a_browser_signs_in_through_the_provider(site: Site) -> None:
    method(site, "public")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(base_url=site.agent.address)
        page.set_default_timeout(60_000)
        page.goto("/ui/sign-in?back=%2Fui%2Fjobs")
        page.get_by_role("button", name="Sign in with public").click()
        page.locator("[name=login]").fill("alice")
        page.locator("[name=password]").fill("x")
        page.locator("[type=submit]").click()
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("Alice by public").wait_for()
        page.wait_for_url("**/ui/jobs")
        assert page.evaluate("() => document.cookie") == ""
        browser.close()
