"""`yurt login` against a real application and a provider of tests."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from yurt.cli.files.callback import CallbackServer
from yurt.cli.main import main
from yurt.cli.views import browser
from yurt.testing.login.site import Site, jwt, login_site

Browse = Callable[[dict[str, str]], None]


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Shell:
    """Commands of a user without a token, and the user's browser."""

    def __init__(self, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
        self.site = site
        self.capsys = capsys
        self.browsers: list[threading.Thread] = []
        self.pages: list[tuple[int, str]] = []
        self.browse: Browse = self.agree

    async def run(self, *words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, ["login", *words])
        for each in self.browsers:
            each.join()
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err

    def opened(self, url: str) -> bool:
        """The command opens the browser: what follows happens beside it."""
        query = dict(parse_qsl(urlsplit(url).query))
        self.browsers.append(threading.Thread(target=self.browse, args=(query,)))
        self.browsers[-1].start()
        return True

    def agree(self, query: dict[str, str]) -> None:
        self.come_back(query, state=query["state"], code=self.site.provider.authorize(query))

    def come_back(self, query: dict[str, str], **parameters: str) -> None:
        self.pages.append(fetch(f"{query['redirect_uri']}?{urlencode(parameters)}"))


@pytest.fixture
async def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Shell]:
    async with login_site(tmp_path) as site:
        monkeypatch.setenv("NOMAD_ADDR", str(site.api.client.make_url("/")).rstrip("/"))
        made = Shell(site, capsys)
        monkeypatch.setattr(browser, "opened", made.opened)
        yield made


async def test_a_user_logs_in_through_the_browser(shell: Shell) -> None:
    await shell.site.oidc_method(OIDCEnablePKCE=True, AllowedRedirectURIs=["http://localhost:4649/oidc/callback"])
    await shell.site.rule("sso")
    code, out, err = await shell.run("-method=sso", "-oidc-callback-addr=localhost:0")
    assert code == 0, err
    assert out.startswith("Successfully logged in via OIDC and sso\n\nAccessor ID")
    facts = dict(line.split("=", 1) for line in out.replace(" ", "").splitlines() if "=" in line)
    assert (facts["Name"], facts["Type"], facts["Policies"]) == ("OIDC-sso", "client", "[deploy]")
    own = await shell.site.api.get("/v1/acl/token/self", headers={"X-Nomad-Token": facts["SecretID"]})
    assert own.status == 200 and f"{shell.site.provider.issuer}/authorize?" in err
    ((status, page),) = shell.pages
    assert status == 200 and "Yurt has received the login." in page and "code-0" not in page


async def test_only_the_callback_of_this_login_counts(shell: Shell) -> None:
    await shell.site.oidc_method()
    await shell.site.rule("sso")

    def browse(query: dict[str, str]) -> None:
        shell.come_back(query, state="st_other", code="evil")
        shell.come_back(query, code="evil")
        shell.come_back(query | {"redirect_uri": query["redirect_uri"] + "/x"}, state=query["state"], code="evil")
        shell.agree(query)

    shell.browse = browse
    code, _, err = await shell.run("-method=sso", "-oidc-callback-addr=localhost:0")
    assert code == 0, err
    assert [status for status, _ in shell.pages] == [400, 400, 400, 200]


async def test_what_the_provider_refuses_is_told(shell: Shell) -> None:
    await shell.site.oidc_method()
    shell.browse = lambda query: shell.come_back(
        query, state=query["state"], error="access_denied", error_description="not you"
    )
    code, out, err = await shell.run("-method=sso", "-oidc-callback-addr=localhost:0")
    assert (code, out) == (1, "")
    assert err.endswith("Error performing login: the provider refused: access_denied: not you\n")


async def test_a_login_without_rights_is_told(shell: Shell) -> None:
    await shell.site.oidc_method()
    code, _, err = await shell.run("-method=sso", "-oidc-callback-addr=localhost:0")
    assert code == 1 and err.endswith("Error performing login: no role or policy bindings matched\n")


async def test_a_jwt_logs_in_by_the_default_method(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.site.method(
        "ci", "JWT", {"JWKSURL": shell.site.keys_url, "ClaimMappings": {"team": "team"}}, Default=True
    )
    await shell.site.rule("ci", Selector="value.team==web")
    file = tmp_path / "token"
    file.write_text(jwt() + "\n")
    # A token that nobody knows any more does not matter.
    monkeypatch.setenv("NOMAD_TOKEN", "5b4d9f0c-0000-4000-8000-000000000000")
    code, out, err = await shell.run(f"-login-token=@{file}", "-json")
    assert (code, json.loads(out)["Name"], err) == (0, "JWT-ci", "")
    code, out, err = await shell.run(f"-login-token={jwt()}", "-t={{.Type}} {{.ExpirationTTL}}", "-type=JWT")
    assert (code, out, err) == (
        0,
        "client 10m0s\n",
        "Warning: -type has no effect: the login method has its own type\n",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Must specify an auth method name, no default found"),
        (("-method=x",), "Error: method x not found in the state store. Login methods: ci, sso"),
        (("-method=ci",), "You need to provide a login token."),
        (("-method=ci", "-login-token=x"), "Error performing login: unable to validate provided token: it is not a"),
        (("-method=sso", "-oidc-callback-addr=4649"), '-oidc-callback-addr: "4649" is not HOST:PORT'),
        (("-method=sso", "-oidc-callback-addr=203.0.113.7:1"), "Error: cannot listen on 203.0.113.7:1 for the browser"),
    ],
)
async def test_what_is_missing_is_told(shell: Shell, words: tuple[str, ...], said: str) -> None:
    await shell.site.jwt_method()
    await shell.site.oidc_method()
    code, out, err = await shell.run(*words)
    assert (code, out) == (1, "") and said in err


def test_nobody_waits_for_ever_for_a_browser() -> None:
    with CallbackServer("localhost:0") as server:
        server.expect("s")
        with pytest.raises(Exception, match=r"no browser came back within 0\.01 s"):
            server.wait(0.01)


def test_a_connection_that_says_nothing_holds_nobody_up() -> None:
    """Browsers open connections ahead."""
    with CallbackServer("localhost:0") as server:
        server.expect("s")
        port = urlsplit(server.redirect_uri).port
        with socket.create_connection(("localhost", port)):
            assert fetch(f"{server.redirect_uri}?state=s&code=c")[0] == 200
        assert server.wait(1).code == "c"
