"""Secrets are found by the words of their names and by what they look like."""

from __future__ import annotations

import pytest
from yurt.api.redaction import is_secret_name, redacted, redacted_arguments


@pytest.mark.parametrize(
    "name",
    ["auth", "password", "apiToken", "registry-auth", "SECRET_KEY", "consul.token", "x_api_key", "AWSSecretAccessKey"],
)
def test_a_name_with_a_word_for_a_secret_is_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["key_file", "auth_path", "token_ttl", "monkey", "author", "keyring", "passive", ""])
def test_a_name_of_a_place_or_of_something_else_is_not(name: str) -> None:
    assert not is_secret_name(name)


def test_everything_beneath_a_secret_name_is_blank_and_switches_are_shown() -> None:
    given = {"auth": {"helper": "x", "list": ["a", 5], "soft_fail": True, "empty": ""}, "image": "redis"}
    blank = "<redacted>"
    assert redacted(given) == {
        "auth": {"helper": blank, "list": [blank, blank], "soft_fail": True, "empty": ""},
        "image": "redis",
    }


def test_words_of_a_command_line_lose_the_values_of_secret_flags() -> None:
    given = ["serve", "--token", "a", "-key=b", "PASSWORD=c", "--auth", "--port=80", "https://u:p@h"]
    assert redacted_arguments(given) == [
        "serve", "--token", "<redacted>", "-key=<redacted>", "PASSWORD=<redacted>", "--auth", "--port=80",
        "https://<redacted>@h",
    ]  # fmt: skip
