"""What an agent shows of its environment and its command line holds no secret."""

from __future__ import annotations

import pytest
from yurt.runtime.diagnostics import REDACTED, command_line, environment


@pytest.mark.parametrize(("words", "shown"), [
    (["yurt", "agent", "-encrypt=abc", "-dc", "x"], ["yurt", "agent", f"-encrypt={REDACTED}", "-dc", "x"]),
    (["--consul-token", "abc", "-server"], ["--consul-token", REDACTED, "-server"]),
    (["-acl-replication-token", "abc"], ["-acl-replication-token", REDACTED]),
    (["-config", "key.hcl"], ["-config", "key.hcl"]),
])  # fmt: skip
def test_values_of_flags_that_are_named_for_secrets_are_left_out(words: list[str], shown: list[str]) -> None:
    assert command_line(words) == shown


def test_only_variables_that_are_known_to_be_harmless_are_shown() -> None:
    given = {"PATH": "/bin", "LC_TIME": "C", "NOMAD_TOKEN": "abc", "HTTPS_PROXY": "http://me:abc@proxy", "ANY": "abc"}
    assert environment(given) == {
        "ANY": REDACTED, "HTTPS_PROXY": REDACTED, "LC_TIME": "C", "NOMAD_TOKEN": REDACTED, "PATH": "/bin",
    }  # fmt: skip
