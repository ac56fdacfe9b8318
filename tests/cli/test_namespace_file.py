"""`yurt namespace apply` with a file: the API's form, and all that is wrong with it at its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from yurt.cli.errors import CliError
from yurt.cli.files.namespacefile import read_namespace_hcl

GOOD = """
name        = "team-a"
description = "Web shop"
quota       = "team"

meta {
  owner = "ann"
  floor = 3
}

capabilities {
  enabled_task_drivers   = ["docker", "exec"]
  disabled_network_modes = ["host"]
}

node_pool_config {
  default = "shared"
  allowed = []
}
"""
BAD = """name = 5
descriptio = "x"
node_pool_config = "gpu"
capabilities {
  enabled_task_driver    = ["exec"]
  disabled_network_modes = "host"
}
"""


def test_a_file_is_read_in_the_form_of_the_api() -> None:
    assert read_namespace_hcl("team.hcl", GOOD) == {
        "Name": "team-a", "Description": "Web shop", "Quota": "team", "Meta": {"owner": "ann", "floor": "3"},
        "Capabilities": {"EnabledTaskDrivers": ["docker", "exec"], "DisabledNetworkModes": ["host"]},
        "NodePoolConfiguration": {"Default": "shared", "Allowed": []},
    }  # fmt: skip


def test_every_mistake_is_told_at_its_place_in_the_order_of_the_file() -> None:
    with pytest.raises(CliError) as caught:
        read_namespace_hcl("team.hcl", BAD)
    said = str(caught.value)
    places = [line.strip() for line in said.splitlines() if line.strip().startswith("team.hcl:")]
    assert places == [f"team.hcl:{place}" for place in ("1:8", "2:1", "3:1", "5:3", "6:28")]
    for text in ('Did you mean "description"?', 'Did you mean "enabled_task_drivers"?', "is a list of texts"):
        assert text in said


@pytest.mark.parametrize("text", ["", 'description = "x"'])
def test_a_file_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="A namespace needs a name"):
        read_namespace_hcl("team.hcl", text)


@pytest.mark.parametrize("name", ["nothing.hcl", "nothing.json", "./nothing"])
def test_a_file_that_is_not_there_is_no_namespace(
    api: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run("namespace", "apply", name)
    assert code == 1 and err.startswith(f"{name}: there is no such file\n")


def test_a_file_that_is_no_text_is_named(api: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    assert (
        run("namespace", "apply", str(path))[2] == f"{path}: not a UTF-8 text: it is text in UTF-16; save it as UTF-8\n"
    )


def test_an_empty_list_of_namespaces_says_why(api: Any, run: Any) -> None:
    api.answers["/v1/namespaces"] = []
    assert run("namespace", "list")[:2] == (
        0, "No namespaces to show: no token was given; see -token and NOMAD_TOKEN\n",
    )  # fmt: skip
    told = run("namespace", "list", "-token=aaaaaaaa-0000-0000-0000-000000000000")[1]
    assert told == "No namespaces to show: the token has no right in any namespace\n"
    assert run("namespace", "list", "-json")[1].strip() == "[]"
