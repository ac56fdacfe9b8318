"""`yurt config validate` without an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_files_are_checked_together_as_an_agent_would_read_them(tmp_path: Path, run: Any) -> None:
    first, second = tmp_path / "a.hcl", tmp_path / "b.json"
    first.write_text('server { enabled = true }\nclient { enabled = true options { region = "eu" } }\n')
    second.write_text(f'{{"data_dir": "{tmp_path}"}}')
    assert run("config", "validate", str(first), str(second)) == (0, "Configuration is valid!\n", "")
    assert run("config", "validate", str(tmp_path))[0] == 0
    code, _, errors = run("config", "validate", str(first))
    assert code == 1
    assert "Must specify a data directory" in errors


def test_every_mistake_is_named_with_its_place(tmp_path: Path, run: Any) -> None:
    file = tmp_path / "a.hcl"
    file.write_text('datadir = "/x"\nclient {\n  enabeld = true\n}\n')
    code, _, errors = run("config", "validate", str(file))
    assert code == 1
    assert f"{file}:1:1" in errors
    assert f"{file}:3:3" in errors


def test_a_folder_without_configuration_is_an_error(tmp_path: Path, run: Any) -> None:
    code, _, errors = run("config", "validate", str(tmp_path))
    assert code == 1
    assert "no configuration file there" in errors


@pytest.mark.parametrize("parent", ["../../x", "a/cgroup.procs"])
def test_a_cgroup_parent_that_a_start_refuses_is_refused(tmp_path: Path, run: Any, parent: str) -> None:
    file = tmp_path / "a.hcl"
    file.write_text(
        f'data_dir = "{tmp_path}"\nserver {{\n  enabled = true\n}}\n'
        f'client {{\n  enabled = true\n  cgroup_parent = "{parent}"\n}}\n'
    )
    code, _, errors = run("config", "validate", str(file))
    assert code == 1 and f'client cgroup_parent: "{parent}" must be the path' in errors


def test_a_setting_without_effect_is_told(tmp_path: Path, run: Any) -> None:
    file = tmp_path / "a.hcl"
    file.write_text(f'data_dir = "{tmp_path}"\nserver {{\n  enabled = true\n  plan_apply_pipeline = 2\n}}\n')
    code, out, _ = run("config", "validate", str(file))
    assert code == 0 and out.startswith("Warning: server.plan_apply_pipeline has no effect: ")
