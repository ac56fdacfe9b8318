"""The hint of commands to a page of the web UI."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from yurt.cli.errors import CliError
from yurt.cli.terminal.screen import Screen
from yurt.cli.views.browser import offer_page


class FakeAgent:
    """An agent with this answer about its pages."""

    def __init__(self, answer: dict[str, Any] | CliError) -> None:
        self.answer = answer

    def get(self, _: str) -> dict[str, Any]:
        if isinstance(self.answer, CliError):
            raise self.answer
        return self.answer

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:4646{path}"


@pytest.mark.parametrize(
    ("answer", "is_shown"),
    [({"CLIHints": True}, True), ({"CLIHints": False}, False), ({}, True), (CliError("404"), True)],
    ids=["on", "off", "older", "other"],
)
def test_the_operator_decides_about_hints(answer: dict[str, Any] | CliError, is_shown: bool) -> None:
    out = io.StringIO()
    screen = Screen(out, has_color=False, is_terminal=True)
    call: Any = SimpleNamespace(flags=SimpleNamespace(is_on=lambda _: False), screen=screen, api=FakeAgent(answer))
    offer_page(call, "/ui/jobs", "jobs")
    assert ("Web UI: http://127.0.0.1:4646/ui/jobs" in out.getvalue()) is is_shown


@pytest.mark.parametrize(("setting", "is_shown"), [("", True), ("true", True), ("false", False), ("0", False)])
def test_the_user_decides_about_hints(
    api: Any, run: Any, monkeypatch: pytest.MonkeyPatch, setting: str, is_shown: bool
) -> None:
    monkeypatch.setenv("NOMAD_CLI_SHOW_HINTS", setting)
    api.answers |= {"/v1/jobs": [], "/v1/volumes": []}
    shown = run("job", "stop", "nothing")[2]
    assert shown.startswith('No job(s) with prefix or id "nothing" found\n')
    assert ("List them with" in shown) is is_shown
    assert ("Leave out -json or -t" in run("job", "status", "-json", "-t", "{{.}}")[2]) is is_shown


@pytest.mark.parametrize(("reason", "is_hinted"), [("permission-denied", True), ("file-refused", False)])
def test_the_token_is_blamed_only_for_what_it_lacks(api: Any, run: Any, reason: str, is_hinted: bool) -> None:
    api.answers["/v1/nodes"] = (403, "refused", reason)

    code, _, err = run("node", "status", "-token", "x")

    assert (code, "The token lacks this right" in err) == (1, is_hinted)
