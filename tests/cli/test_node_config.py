"""`node config`: to which servers the client of an agent goes."""

from __future__ import annotations

from typing import Any

import pytest

SERVERS = "/v1/agent/servers"


def test_the_servers_of_a_client_are_listed(api: Any, run: Any) -> None:
    api.answers[SERVERS] = ["10.0.0.1:4647", "10.0.0.2:4647"]
    assert run("node", "config", "-servers") == (0, "10.0.0.1:4647\n10.0.0.2:4647\n", "")


def test_a_client_is_sent_to_other_servers(api: Any, run: Any) -> None:
    api.answers[SERVERS] = []
    assert run("node", "config", "-update-servers", "10.0.0.1", "10.0.0.2:4647") == (0, "", "")
    assert [each[:2] for each in api.asked] == [("PUT", f"{SERVERS}?address=10.0.0.1&address=10.0.0.2%3A4647")]


def test_both_flags_change_the_servers_and_show_them(api: Any, run: Any) -> None:
    api.answers[SERVERS] = ["10.0.0.9:4647"]
    assert run("node", "config", "-update-servers", "-servers", "10.0.0.9") == (0, "10.0.0.9:4647\n", "")
    assert [each[0] for each in api.asked] == ["PUT", "GET"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "One of -servers and -update-servers is needed"),
        (("-update-servers",), "takes the addresses of the servers"),
        (("-servers", "10.0.0.1"), "Addresses go with -update-servers (got: 10.0.0.1)"),
    ],
)
def test_a_wrong_command_line_is_told(api: Any, run: Any, words: tuple[str, ...], text: str) -> None:
    code, _, error = run("node", "config", *words)
    assert (code, api.asked) == (1, [])
    assert text in error


def test_an_agent_without_a_client_and_a_refusal_are_told(api: Any, run: Any) -> None:
    api.answers[SERVERS] = (501, "Invalid method")
    code, _, error = run("node", "config", "-servers")
    assert code == 1 and "runs no client; name one that does with -address" in error
    api.answers[SERVERS] = (400, "goes to no other one")
    code, _, error = run("node", "config", "-update-servers", "10.0.0.1")
    assert code == 1 and "goes to no other one" in error
