"""What an agent left is looked at only while no agent has its data directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from yurt.agent.config import make_config
from yurt.agent.leftovers import clear
from yurt.cli.main import main
from yurt.sdk.errors import Conflict
from yurt.storage.data_dir import DataDir


async def test_nothing_of_an_agent_that_has_its_data_directory_is_touched(tmp_path: Path) -> None:
    config = make_config(
        {"client": {"enabled": True}, "server": {"enabled": True}}, {"data_dir": str(tmp_path)}, is_dev=False
    )
    held = DataDir(tmp_path)
    try:
        with pytest.raises(Conflict, match=r"the agent of .* runs \(pid [0-9]+\): what there is belongs to it"):
            await clear(config, removes=True)
    finally:
        held.close()


def test_the_command_asks_whose_leftovers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-leftovers"]) == 1
    assert "Say which agent's: -data-dir=/var/lib/yurt" in capsys.readouterr().err


def test_a_data_directory_that_never_was_has_left_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "never"
    main(["doctor", "-leftovers", "-json", "-data-dir", str(place)])
    found = json.loads(capsys.readouterr().out)
    assert not [each for each in found if each["kind"] != "network"], "networks of others that are gone may be there"
    assert not place.exists()
