"""Plugin binaries for tests: our own server behind a script, as an operator would put it into plugin_dir."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ScriptMaker = Callable[[str, str], str]


@pytest.fixture
def make_script(tmp_path: Path) -> ScriptMaker:
    """Writes an executable of this name and content into a plugin folder, and tells its path."""

    def make(name: str, body: str) -> str:
        folder = tmp_path / "plugins"
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text(body)
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def serve_script(make_script: ScriptMaker, tmp_path: Path) -> Callable[[str], str]:
    """A script that serves one of our drivers."""

    def make(name: str) -> str:
        yurt = f'exec {sys.executable} -m yurt.cli.main driver serve -state-dir "{tmp_path}/served"'
        return make_script(name, f"#!/bin/sh\n{yurt} {name}\n")

    return make
