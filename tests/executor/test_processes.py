"""Processes by pid and start time, also when the system refuses to tell."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from yurt.executor.process_identity import is_alive, start_time

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Let this process open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_live_process_is_not_said_to_have_ended_when_no_file_can_be_opened() -> None:
    started = start_time(os.getpid())
    with without_descriptors():
        told, alive, stranger = start_time(os.getpid()), is_alive(os.getpid(), started), is_alive(0, started)
    assert (told, alive, stranger) == (0, True, False)


def test_a_process_that_has_ended_is_known_to_have_even_then() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with without_descriptors():
        assert not is_alive(process.pid, 1)


def test_another_process_of_the_same_number_is_a_stranger() -> None:
    assert is_alive(os.getpid(), start_time(os.getpid()))
    assert not is_alive(os.getpid(), start_time(os.getpid()) + 1)
