"""Which files of the agent no task may see."""

from __future__ import annotations

from yurt.agent.plugin_context import files_named


def test_files_that_the_configuration_names_are_found_wherever_they_stand() -> None:
    found = files_named(
        {
            "tls": {"key_file": "/keys/agent.key", "cert_file": "relative.pem", "http": True},
            "client": {"options": {"x": "/not/a/file"}},
            "plugin": [{"docker": {"config": {"tls": {"key_file": "/keys/docker.key"}}}}],
        }
    )
    assert found == {"/keys/agent.key", "/keys/docker.key"}
