"""The address of a container engine: who may use its socket."""

from __future__ import annotations

import grp
import os
from pathlib import Path

import pytest
from yurt.sdk.containers.address import EngineAddress


def test_a_user_without_access_to_the_socket_is_told_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = tmp_path / "engine.sock"
    socket.write_text("")
    address = EngineAddress(f"unix://{socket}")
    assert address.group_fix() == ""

    monkeypatch.setattr(os, "access", lambda path, mode: False)
    group = grp.getgrgid(socket.stat().st_gid).gr_name
    assert f'the group "{group}", which owns {socket}: sudo usermod -aG {group} ' in address.group_fix()


def test_no_group_is_named_where_there_is_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert EngineAddress(f"unix://{tmp_path}/none.sock").group_fix() == ""
    assert EngineAddress("tcp://127.0.0.1:1").group_fix() == ""
