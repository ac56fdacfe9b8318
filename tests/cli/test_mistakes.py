"""The first hour of a new user: each common mistake is answered with what, where, why and the fix."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.cli.api.client import ApiClient
from yurt.cli.main import main
from yurt.testing.http_api import add_ready_node, serving

from docs.generator.mistake_lines import LINE_MISTAKES, LineMistake
from docs.generator.mistake_table import FILE_MISTAKES, FileMistake

START_LIMIT_S = 60.0
FILE = "shop.nomad.hcl"


class Background:
    """A server with one node and one job, in a thread."""

    def __init__(self) -> None:
        self.address = ""
        self._ready, self._loop, self._stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with serving() as api:
            await add_ready_node(api)
            await api.register("web")
            self.address = str(api.client.make_url("/")).rstrip("/")
            self._ready.set()
            await self._stop.wait()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(START_LIMIT_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_LIMIT_S)


@pytest.fixture(scope="module")
def server() -> Iterator[Background]:
    found = Background()
    found.start()
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def folder(server: Background, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOMAD_ADDR", server.address)
    monkeypatch.setenv("NOMAD_CLI_NO_COLOR", "1")
    return tmp_path


@pytest.mark.parametrize("mistake", FILE_MISTAKES, ids=lambda each: each.title)
def test_a_mistake_in_a_job_file_is_answered(
    mistake: FileMistake, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / FILE).write_text(mistake.source())

    code = main(["job", "validate", FILE])

    told = "".join(capsys.readouterr())
    assert code == mistake.code
    assert f"{FILE}:{mistake.where}\n" in told
    assert mistake.what in told and mistake.fix in told


@pytest.mark.parametrize("mistake", LINE_MISTAKES, ids=lambda each: each.typed)
def test_a_mistake_on_the_command_line_is_answered(
    mistake: LineMistake, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / FILE).write_text(FILE_MISTAKES[0]._replace(parts={}).source())

    code = main(mistake.typed.split(" "))

    told = "".join(capsys.readouterr())
    assert code in ((1, 127, 255) if mistake.is_refused else (0,))
    assert mistake.what in told and mistake.fix in told
    assert "Traceback" not in told and "Internal error" not in told


@pytest.mark.parametrize(
    "command", ["job status", "eval list", "deployment list", "var list -out json", "service list"]
)
def test_an_empty_list_of_a_missing_namespace_stays_an_answer(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [] if "-out" in command else ["-json"]
    words = command.split(" ")
    code = main([*words[:2], "-namespace=nope", *words[2:], *flags])

    told = capsys.readouterr()
    assert (code, told.out.strip()) == (0, "[]")
    assert 'There is no namespace "nope"' in told.err


SEVERAL = """\
job "shop" {
  type     = "deamon"
  priority = "high"
  group "web" {
    count = -1
    network {
      prot "http" {}
    }
    service {
      name     = "web"
      port     = "http"
      provider = "nomad"
    }
    restart {
      mode = "retry"
    }
    task "main" {
      drivre = "docker"
      resources {
        cpu        = "2 cores"
        memory     = 300
        memory_max = "many"
      }
      template {
        data = "x"
      }
    }
  }
}
"""


@pytest.mark.parametrize("command", [("validate",), ("run", "-detach"), ("plan",)])
def test_mistakes_that_the_file_and_the_server_show_are_told_at_once(
    command: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / FILE).write_text(SEVERAL)

    assert main(["job", *command, FILE]) != 0

    told = "".join(capsys.readouterr())
    places = [line.strip().removeprefix(f"{FILE}:") for line in told.splitlines() if f"{FILE}:" in line]
    from_file, from_server = ["3:15", "7:7", "18:7", "20:23", "22:23"], ["2:3", "5:5", "15:7", "24:7"]
    assert places == from_file + from_server


def test_without_an_agent_the_mistakes_of_the_file_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / FILE).write_text(SEVERAL)
    monkeypatch.setenv("NOMAD_ADDR", "http://127.0.0.1:1")

    assert main(["job", "validate", FILE]) == 1

    assert "".join(capsys.readouterr()).count(f"{FILE}:") == 5


def test_the_servers_of_the_jobs_region_are_asked_unless_no_agent_is_needed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / FILE).write_text(SEVERAL.replace("{\n", '{\n  region = "eu"\n', 1))
    asked: list[Any] = []

    def put(_: Any, path: str, body: Any, query: Any) -> list[str]:
        asked.append((path, query["region"]))
        return ["no object"]

    monkeypatch.setattr(ApiClient, "put", put)
    for command in (["validate"], ["run", "-output"]):
        assert main(["job", *command, FILE]) == 1
        assert "".join(capsys.readouterr()).count(f"{FILE}:") == 5
    assert asked == [("/v1/validate/job", "eu")]


UNREADABLE = {"job": "kindd = 1", "group": "amountt = 1", "task": "usrr = 1"}
"""A line that cannot be read, by its place; it may be one that the rest of the file needs."""
FOLLOWS = {
    ("A task without a driver", "task"), ("A port that the group does not have", "group"),
    ("A periodic service", "job"), ("More restarts than fit", "job"),
    ("A volume that the group does not have", "group"), ("A maximum below the minimum", "group"),
    ("Healthy later than the deadline", "job"), ("Canaries that nobody asked for", "job"),
    ("An update block in a batch job", "job"), *(("A negative kill_timeout", place) for place in UNREADABLE),
}  # fmt: skip
"""Mistakes that such a line may be the cause of."""


STRUCTURED = [each for each in FILE_MISTAKES if each.code and not {"whole", "end", "cut"} & each.parts.keys()]
"""Mistakes in a file whose structure is certain; warnings of a file with errors are not told."""


@pytest.mark.parametrize("place", UNREADABLE)
@pytest.mark.parametrize("mistake", STRUCTURED, ids=lambda each: each.title)
def test_a_mistake_is_told_with_a_line_that_cannot_be_read_unless_it_may_follow_from_it(
    mistake: FileMistake, place: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = shown_lines(mistake, folder, capsys)[0]
    both = mistake._replace(
        parts={**mistake.parts, place: f"{mistake.parts.get(place, '')}\n{UNREADABLE[place]}".strip()}
    )

    lines, told = shown_lines(both, folder, capsys)

    assert lines <= alone | {UNREADABLE[place]}
    assert (mistake.what in told) == ((mistake.title, place) not in FOLLOWS)


@pytest.mark.parametrize(
    "parts",
    [
        {"job": 'typ = "batch"\n  periodic {\n    crons = ["@daily"]\n  }'},
        {"job": 'typ = "batch"', "group": 'restart {\n  attempts = 20\n  delay = "10m"\n  interval = "24h"\n}'},
        {"job": 'typ = "batch"', "group": 'max_run_duration = "1h"'},
        {"group": 'netwrk {\n  port "http" {}\n}\nservice {\n  provider = "nomad"\n  port = "http"\n}'},
        {"group": 'network {\n  prt "http" {}\n}\nservice {\n  provider = "nomad"\n  port = "http"\n}'},
        {"group": 'volum "data" {}', "task": 'volume_mount {\n  volume = "data"\n  destination = "/data"\n}'},
        {"group": "cont = 3\nscaling {\n  min = 2\n  max = 5\n}"},
        {"group": "ephemeral_disk {\n  siz = 9000\n}", "task": "logs {\n  max_files = 50\n  max_file_size = 20\n}"},
        {
            "group": 'service {\n  provider = "nomad"\n  prt = "http"\n'
            '  check {\n    type = "tcp"\n    interval = "10s"\n    timeout = "2s"\n  }\n}'
        },
        {"group": 'update {\n  progress_deadlin = "30m"\n}', "task": 'kill_timeout = "20m"'},
        {"group": 'updat {\n  progress_deadline = "30m"\n}', "task": 'kill_timeout = "11m"\nshutdown_delay = "12m"'},
        {"job": 'update {\n  progress_deadlin = "30m"\n}', "group": 'update {\n  healthy_deadline = "15m"\n}'},
        {"job": 'update {\n  progress_deadlin = "30m"\n  healthy_deadline = "15m"\n}'},
        {"job": 'update {\n  progress_deadlin = "30m"\n}', "task": 'kill_timeout = "20m"'},
        {"job": "update {\n  canry = 1\n}", "group": "update {\n  auto_promote = true\n}"},
        {"job": "updat {\n  canary = 1\n}", "group": "update {\n  auto_promote = true\n}"},
        {
            "job": 'reschedule {\n  intervl = "240h"\n}',
            "group": 'reschedule {\n  attempts = 20\n  delay = "30m"\n  unlimited = false\n}',
        },
        {"job": 'migrate {\n  healthy_deadlin = "30m"\n}', "group": 'migrate {\n  min_healthy_time = "10m"\n}'},
        {
            "group": 'restart {\n  intervl = "24h"\n}',
            "task": 'restart {\n  attempts = 20\n  delay = "10m"\n}',
        },
        {
            "group": 'network {\n  port "http" {}\n}\nservice {\n  provider = "nomad"\n  port = "http"\n'
            '  check {\n    type = "http"\n    pth = "/"\n    interval = "10s"\n    timeout = "2s"\n  }\n}'
        },
        {"job": "parameterised {}", "task": 'dispatch_payload {\n  file = "input"\n}'},
    ],
    ids=lambda parts: " ".join(re.findall(r"\w+", str(parts))),
)
def test_nothing_is_told_that_follows_from_a_line_that_cannot_be_read(
    parts: dict[str, str | bool], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "The server refuses" not in shown_lines(FILE_MISTAKES[0]._replace(parts=parts), folder, capsys)[1]


def shown_lines(mistake: FileMistake, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[set[str], str]:
    """The lines of the file that the answer shows, and the answer."""
    (folder / FILE).write_text(mistake.source())
    main(["job", "validate", FILE])
    told = "".join(capsys.readouterr())
    return set(re.findall(rf"^  {FILE}:\d+:\d+\n +\|\n +\d+ \| +(.*)$", told, re.MULTILINE)), told


def test_there_are_forty_of_each_kind() -> None:
    assert len(FILE_MISTAKES) >= 40 and len(LINE_MISTAKES) >= 40
    assert len({each.title for each in FILE_MISTAKES}) == len(FILE_MISTAKES)
    assert len({each.typed for each in LINE_MISTAKES}) == len(LINE_MISTAKES)
