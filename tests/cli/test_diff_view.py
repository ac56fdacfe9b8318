"""The differences that `job plan` and `job history -p` print: `plan_diffs.txt` has two job files and the text for each.

`REWRITE_TRANSCRIPTS=1` writes the texts anew, to be read in review.
"""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import pytest
from yurt.api.decode import decode_job
from yurt.api.encode import encode_json
from yurt.cli.terminal.screen import Screen
from yurt.cli.views.diff import DiffPrinter
from yurt.rules.canonical import canonicalize_job
from yurt.rules.diff import job_diff
from yurt.server.scheduling.plan_annotations import annotated
from yurt.structs.job import Job
from yurt_jobspec import parse_job

CASES = Path(__file__).parent / "plan_diffs.txt"
JOB = """job "j" {{
  group "g" {{
    task "t" {{
      driver = "raw_exec"
      config {{
        command = "c"
      }}
{task}
    }}
{group}
  }}
{job}
}}"""
_PARTS = re.compile(
    r"^=== (?P<name>.+)\n(?P<old>(?:.*\n)*?)^--->\n(?P<new>(?:.*\n)*?)^----\n(?P<text>(?:.*\n)*?)\n", re.M
)


def cases() -> list[tuple[str, str, str, str]]:
    """Title, what the old and the new job add to a small job, and the text."""
    return [match.groups() for match in _PARTS.finditer(CASES.read_text())]  # type: ignore[misc]


def job_of(text: str) -> Job | None:
    """A job with the lines that follow `job:`, `group:` or `task:`; None for `no job`, a whole job from `job "`."""
    if text.strip() == "no job":
        return None
    places = {"job": "", "group": "", "task": ""}
    place = "task"
    for line in text.splitlines():
        if line.rstrip(":") in places:
            place = line.rstrip(":")
        else:
            places[place] += f"{line}\n"
    source = text if text.startswith("job ") else JOB.format(**places)
    job, _ = decode_job(canonicalize_job(parse_job(source, filename="case")))
    return job


def printed(old: str, new: str) -> str:
    """The text of the difference, with the annotations of a plan; blocks of a new job too."""
    diff = annotated(job_diff(job_of(old), job_of(new)), None)
    screen = Screen(io.StringIO(), has_color=False, is_terminal=False)
    is_verbose = "no job" in (old.strip(), new.strip())
    return DiffPrinter(screen, verbose=is_verbose).job(json.loads(encode_json(diff))) + "\n"


@pytest.mark.parametrize(("name", "old", "new", "text"), cases(), ids=lambda value: value if "\n" not in value else "")
def test_a_change_of_a_job_is_printed(name: str, old: str, new: str, text: str) -> None:
    found = printed(old, new)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        before = f"=== {name}\n{old}--->\n{new}----\n"
        CASES.write_text(CASES.read_text().replace(f"{before}{text}\n", f"{before}{found}\n"))
    else:
        assert found == text
