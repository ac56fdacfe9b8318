"""The agent's log in files, syslog and the journal."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.agent.config import make_config
from yurt.agent.process import logs
from yurt.agent.process.logs import AgentLogs, LogSettings, file_path, is_journal, log_problems, priority
from yurt.agent.run import log_settings
from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS

log = logging.getLogger("yurt.agent.test")


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def agent_logs(now: int = 0, **settings: object) -> AgentLogs:
    return AgentLogs(LogSettings(**settings), stream=io.StringIO(), now=lambda: now)  # type: ignore[arg-type]


def test_lines_go_to_a_file_that_is_rotated_by_size(tmp_path: Path) -> None:
    agent_logs(file=f"{tmp_path}/agent.log", rotate_bytes=200, rotate_max_files=2)
    for number in range(12):
        log.info("a line: number=%d", number)
    older = sorted(tmp_path.glob("agent-*.log"))
    assert len(older) == 2 and all(file.stat().st_size <= 200 for file in older)
    newest = (tmp_path / "agent.log").read_text().splitlines()
    assert newest[-1].endswith("[INFO]  agent.test: a line: number=11")
    assert (tmp_path / "agent.log").stat().st_mode & 0o777 == 0o640


def test_a_file_is_rotated_by_its_age_over_restarts(tmp_path: Path) -> None:
    line = "2026-01-01T00:00:00.000Z [INFO]  agent: begun\n"
    (tmp_path / "agent.log").write_text(line)
    later = 1_767_225_600 * NANOSECONDS + 7200 * NANOSECONDS  # two hours after that line
    agent_logs(later, file=f"{tmp_path}/agent.log", rotate_s=3600.0)
    log.info("new")
    (older,) = tmp_path.glob("agent-*.log")
    assert older.read_text() == line
    assert (tmp_path / "agent.log").read_text().endswith("new\n")


def test_no_older_file_is_kept_where_none_is_wanted(tmp_path: Path) -> None:
    agent_logs(file=f"{tmp_path}/agent.log", rotate_bytes=80, rotate_max_files=-1)
    for _ in range(3):
        log.info("a line")
    assert [file.name for file in tmp_path.iterdir()] == ["agent.log"]


def test_a_folder_gets_a_file_of_a_known_name(tmp_path: Path) -> None:
    assert file_path(f"{tmp_path}/logs/") == tmp_path / "logs" / "yurt.log"
    assert file_path(str(tmp_path)) == tmp_path / "yurt.log"


def test_json_and_the_level_hold_for_the_file_too(tmp_path: Path) -> None:
    made = agent_logs(file=f"{tmp_path}/agent.log", as_json=True, level="WARN")
    log.info("hidden")
    made.set_level("INFO")
    log.info("shown")
    (line,) = (tmp_path / "agent.log").read_text().splitlines()
    assert json.loads(line)["@message"] == "shown"


def test_all_destinations_name_the_line_of_source_where_that_is_configured(tmp_path: Path) -> None:
    config = make_config({"log_include_location": True, "log_file": f"{tmp_path}/agent.log"}, {}, is_dev=True)
    shown = io.StringIO()
    AgentLogs(log_settings(config), stream=shown, now=lambda: 0)
    log.info("ready")
    for text in (shown.getvalue(), (tmp_path / "agent.log").read_text()):
        assert re.search(r"process/test_logs\.py:\d+: agent\.test: ready$", text)


def test_a_file_that_was_renamed_by_others_is_begun_anew_by_a_reload(tmp_path: Path) -> None:
    made = agent_logs(file=f"{tmp_path}/agent.log")
    log.info("old")
    (tmp_path / "agent.log").rename(tmp_path / "agent.log.1")
    made.reopen()
    log.info("new")
    assert "new" in (tmp_path / "agent.log").read_text() and "new" not in (tmp_path / "agent.log.1").read_text()


def test_a_file_that_cannot_be_opened_is_told_before_the_agent_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match=r"log_file: .*/file/agent.log cannot be opened: "):
        agent_logs(file=f"{tmp_path}/file/agent.log")


def test_syslog_gets_lines_with_facility_priority_and_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "log")
    monkeypatch.setattr(logs, "SYSLOG_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(path)
        daemon.settimeout(10)
        agent_logs(has_syslog=True, syslog_facility="LOCAL3")
        log.error("it broke")
        text = daemon.recv(4096).decode()
    assert text.startswith(f"<{19 * 8 + 3}>yurt[{os.getpid()}]: ") and text.endswith("agent.test: it broke")


def test_lines_in_a_syslog_daemons_stream_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "log")
    monkeypatch.setattr(logs, "SYSLOG_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.bind(path)
        daemon.listen()
        agent_logs(has_syslog=True)
        log.info("one")
        log.info("two")
        daemon.accept()[0].close()  # the probe of whether anything listens
        connection, _ = daemon.accept()
        with connection:
            first, second, rest = connection.recv(4096).split(b"\0")
    assert (first.endswith(b"agent.test: one"), second.endswith(b"agent.test: two"), rest) == (True, True, b"")


def test_a_syslog_daemon_that_does_not_read_costs_lines_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(tmp_path / "log"))
        monkeypatch.setattr(logs, "SYSLOG_SOCKET", str(tmp_path / "log"))
        agent_logs(has_syslog=True)
        for _ in range(2_000):  # its queue is full long before: a blocking socket waits here for ever
            log.info("x" * 1_000)
        assert b"agent.test: xxx" in daemon.recv(4_096)


def test_a_message_that_does_not_fit_its_arguments_harms_nobody(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    agent_logs(file=f"{tmp_path}/agent.log")
    log.info("%d lines", "many")
    log.info("later")
    assert (tmp_path / "agent.log").read_text().endswith("agent.test: later\n")
    assert "--- Logging error ---" in capsys.readouterr().err


def test_a_missing_syslog_daemon_is_told_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SYSLOG_SOCKET", str(tmp_path / "log"))
    with pytest.raises(Invalid, match=r"enable_syslog: nothing listens at .* under systemd the journal has the log"):
        agent_logs(has_syslog=True)


def test_the_journal_gets_priorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("w") as out:
        found = os.fstat(out.fileno())
        assert is_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}, out)
        assert not is_journal({"JOURNAL_STREAM": "1:2"}, out) and not is_journal({}, out)
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        monkeypatch.setattr(sys, "stdout", out)
        stream = io.StringIO()
        AgentLogs(LogSettings(), stream=stream, now=lambda: 0)
        log.warning("look")
    assert stream.getvalue().startswith("<4>20") and stream.getvalue().endswith("look\n")
    assert [priority(level) for level in (logging.ERROR, logging.INFO, logging.DEBUG)] == [3, 6, 7]


def test_mistakes_are_told() -> None:
    found = log_problems({"syslog_facility": "LOCAL9", "log_rotate_max_files": -2, "log_rotate_bytes": -1})
    assert [text.split(" ")[0] for text in found] == ["syslog_facility", "log_rotate_max_files", "log_rotate_bytes"]
    assert log_problems({"syslog_facility": "daemon"}) == []
