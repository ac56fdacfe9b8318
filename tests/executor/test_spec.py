"""The pure half of the executor: names, candidates for a command, framing, and the texts of failures."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.executor.spec import (
    Failed,
    ProcessSpec,
    StartedProcess,
    candidates,
    decode_answer,
    file_name,
    start_failure,
    take_lines,
)
from yurt.executor.task_child import failed_line, started_line
from yurt.sdk.errors import RecoverableError


def spec(command: str = "web") -> ProcessSpec:
    return ProcessSpec(
        task_id="a/b/0", argv=(command,), env={}, cwd="/work", logs_dir="/logs", log_name="b", user="bob"
    )


def test_an_absolute_command_means_itself() -> None:
    assert candidates("/bin/ls", "/usr/bin", ("/local",)) == ("/bin/ls",)


def test_a_bare_command_is_looked_for_in_the_search_folders_and_then_in_path() -> None:
    assert candidates("ls", "/a:/b", ("/local",)) == ("/local/ls", "/a/ls", "/b/ls")


def test_a_relative_command_is_never_looked_for_in_path() -> None:
    assert candidates("bin/ls", "/a", ("/local",)) == ("/local/bin/ls", "bin/ls")


@settings(deadline=None)
@given(first=st.text(min_size=1, max_size=300), second=st.text(min_size=1, max_size=300))
def test_different_tasks_have_different_file_names(first: str, second: str) -> None:
    assert (file_name(first) == file_name(second)) == (first == second)
    assert "/" not in file_name(first)
    assert len(file_name(first)) <= 200


@settings(deadline=None)
@given(
    lines=st.lists(st.binary(max_size=50).filter(lambda line: b"\n" not in line), max_size=5), size=st.integers(1, 20)
)
def test_answers_arrive_whole_however_they_are_cut(lines: list[bytes], size: int) -> None:
    stream, buffer, found = b"".join(line + b"\n" for line in lines), bytearray(), []
    for start in range(0, len(stream), size):
        buffer += stream[start : start + size]
        found += take_lines(buffer)
    assert found == lines
    assert not buffer


def test_what_a_shim_says_is_what_the_agent_reads() -> None:
    started = decode_answer(started_line(7, main=os.getpid(), shim=os.getppid()))
    assert isinstance(started, StartedProcess)
    assert (started.id, started.pid, started.shim_pid) == (7, os.getpid(), os.getppid())
    assert decode_answer(failed_line(8, b"cwd", errno.ENOENT)) == Failed(8, "cwd", errno.ENOENT)


@pytest.mark.parametrize(
    ("stage", "code", "words"),
    [
        ("exec", errno.ENOENT, ['"web"', "PATH", "install it"]),
        ("exec", errno.EACCES, ['"web"', "chmod +x"]),
        ("exec", errno.ENOEXEC, ["#!/bin/sh"]),
        ("cwd", errno.ENOENT, ["/work", "work_dir"]),
        ("user", errno.EPERM, ['"bob"', "root"]),
        ("logs", errno.EACCES, ["/logs"]),
    ],
)
def test_a_failure_names_the_command_the_reason_and_the_remedy(stage: str, code: int, words: list[str]) -> None:
    text = str(start_failure(spec(), stage=stage, code=code))
    assert "web" in text
    assert errno.errorcode[code] in text
    assert all(word in text for word in words)


def test_a_lack_of_resources_may_pass() -> None:
    assert isinstance(start_failure(spec(), stage="fork", code=errno.EAGAIN), RecoverableError)
    assert not isinstance(start_failure(spec(), stage="exec", code=errno.ENOENT), RecoverableError)
