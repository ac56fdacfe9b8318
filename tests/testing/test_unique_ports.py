"""Ports and subnets of tests: processes that run beside each other never have the same."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from yurt.testing import unique_ports

ASK = """
import sys
from yurt.testing import unique_ports
name, number, unique_ports.FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
print(unique_ports._is_claimed(name, number))
"""


def another_process_gets(name: str, number: int, folder: str = unique_ports.FOLDER) -> bool:
    """Whether a process of its own can claim a number, until it ends."""
    command = [sys.executable, "-c", ASK, name, str(number), folder]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


def test_a_port_is_nobody_elses_though_nobody_listens_on_it() -> None:
    port = unique_ports.quiet_port()

    assert not another_process_gets("ports", port - unique_ports.LOWEST_PORT)
    assert port not in unique_ports.free_ports(3)


def test_a_subnet_is_nobody_elses() -> None:
    number, prefix = unique_ports.own_subnet()

    assert not another_process_gets("subnets", number)
    assert unique_ports.own_subnet()[1] != prefix


def test_what_a_process_has_claimed_is_free_when_it_has_ended(tmp_path: Path) -> None:
    assert [another_process_gets("ports", 7, str(tmp_path)) for _ in range(2)] == [True, True]


def test_a_port_that_somebody_listens_on_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = unique_ports.free_ports(2)
    numbers = [port - unique_ports.LOWEST_PORT for port in (taken, free)]
    monkeypatch.setattr(unique_ports, "_numbers", lambda *_: iter(numbers))
    with socket.create_server(("127.0.0.1", taken)):
        assert unique_ports.quiet_port() == free
