"""The first screen: the command that works here, the level that the terminal gets, every driver."""

from __future__ import annotations

from pathlib import Path

from yurt.agent.banner import command_name


def test_the_suggested_command_is_one_that_can_be_typed(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    environ = {"PATH": str(tools)}
    assert command_name(tmp_path, environ) == "yurt"

    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "core" / "src" / "yurt").mkdir(parents=True)
    assert command_name(tmp_path, environ) == "yurt"
    own = tmp_path / ".venv" / "bin" / "yurt"
    own.parent.mkdir(parents=True)
    own.touch()
    assert command_name(tmp_path, environ) == ".venv/bin/yurt"
    assert command_name(tmp_path, {**environ, "VIRTUAL_ENV": str(tmp_path / ".venv")}) == "yurt"

    (tools / "uv").touch(mode=0o755)
    assert command_name(tmp_path, environ) == "uv run yurt"
