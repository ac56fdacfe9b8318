"""What the documentation shows is true: its job files parse and its examples run against a real agent.

A block marked `hcl` or `csv` whose first line is `# file: NAME` is written to the page's folder, without that line in
`csv`; a page with an `agent.hcl` has
an agent of its own, with that configuration, and so has a page that starts `yurt agent -dev -acl`, whose commands show
the management token. In a block marked
`console`, a line `$ COMMAND` is run; the lines below it must occur in the output in that order, `...` standing
for anything, and `exit: N` names an exit code that is not 0. `$ export NAME=$(COMMAND)` keeps the output, and `$NAME`
stands for it later.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from yurt.testing.agent import POLL_LATER_S, Agent, dev_token, running_agent
from yurt_jobspec import parse_body, parse_job

LATER = {("alloc", "logs"), ("alloc", "status"), ("job", "status"), ("service", "info")}
LATER_S = 60.0
ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
WITH_ACL = "$ yurt agent -dev -acl\n"
KEPT = re.compile(r"export (\w+)=\$\((.*)\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    """One command of a console block, what it must show, and the name under which its output is kept."""

    command: list[str]
    expected: list[str]
    code: int
    name: str = ""


def blocks(page: Path, language: str) -> list[str]:
    """The page's blocks of that language."""
    return [body for name, body in BLOCK.findall(page.read_text()) if name == language]


def file_name(block: str) -> str | None:
    """The name on the first line, if it has one."""
    match = re.match(r"# file: (\S+)\n", block)
    return match[1] if match else None


def steps(block: str) -> list[Step]:
    """The commands of a console block."""
    found = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *lines = part.rstrip("\n").split("\n")
        exits = [int(line.removeprefix("exit: ")) for line in lines if line.startswith("exit: ")]
        expected = [line for line in lines if line != "..." and not line.startswith("exit: ")]
        kept = KEPT.fullmatch(command)
        words = shlex.split(kept[2] if kept else command)
        found.append(Step(words, expected, exits[0] if exits else 0, kept[1] if kept else ""))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_hcl_block_is_valid(page: Path) -> None:
    for block in blocks(page, "hcl"):
        if re.search(r"^job ", block, re.MULTILINE):
            parse_job(block, filename=page.name)
        else:
            parse_body(block, filename=page.name)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "console")], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_every_console_block_runs(page: Path, dev_agent: Agent, tmp_path: Path) -> None:
    own = [block for block in blocks(page, "hcl") if file_name(block) == "agent.hcl"]
    if WITH_ACL in page.read_text():
        with acl_agent(tmp_path) as agent:
            follow(page, agent)
        return
    if not own:
        follow(page, dev_agent)
        return
    with running_agent(tmp_path, extra=parse_body(own[0], filename=page.name)) as agent:
        follow(page, agent)


@contextmanager
def acl_agent(folder: Path) -> Iterator[Agent]:
    """A dev agent with access control and its management token."""
    agent = Agent(folder, data_dir=None)
    agent.flags = ("-acl",)
    agent.spawn()
    try:
        agent.token = dev_token(agent)
        yield agent
    finally:
        agent.interrupt()


def follow(page: Path, agent: Agent) -> None:
    """Do what a page says."""
    kept: dict[str, str] = {}
    for language, block in BLOCK.findall(page.read_text()):
        name = file_name(block)
        if language == "hcl" and name:
            (agent.folder / name).write_text(block)
        if language == "csv" and name:
            (agent.folder / name).write_text(block.split("\n", 1)[1])
        if language == "console":
            for step in steps(block):
                run(agent, step._replace(command=[filled(word, kept) for word in step.command]), kept)


def filled(word: str, kept: Mapping[str, str]) -> str:
    """A word with kept outputs in it."""
    return re.sub(r"\$([A-Z]+)\b", lambda found: kept.get(found[1], found[0]), word)


def run(agent: Agent, step: Step, kept: dict[str, str]) -> None:
    """Run one command and compare; what asks how tasks are doing is asked again while they may still be starting."""
    assert step.command[0] == "yurt", f"examples run yurt, not {step.command[0]}"
    end_s = time.monotonic() + (LATER_S if tuple(step.command[1:3]) in LATER else 0.0)
    while True:
        done = agent.cli(*step.command[1:])
        problem = difference(done, step)
        if not problem or time.monotonic() >= end_s:
            break
        time.sleep(POLL_LATER_S)
    assert not problem, problem
    if step.name:
        kept[step.name] = done.stdout.strip()


def difference(done: subprocess.CompletedProcess[str], step: Step) -> str:
    """What a command showed otherwise than its page, in words; nothing when it showed what it should.

    Columns are as wide as what stands in them, so any number of spaces counts as one.
    """
    output = one_space(done.stdout + done.stderr)
    if done.returncode != step.code:
        return f"{shlex.join(step.command)} exited {done.returncode}:\n{output}"
    at = 0
    for line in map(one_space, step.expected):
        found = output.find(line, at)
        if found < 0:
            return f"{shlex.join(step.command)} did not show {line!r} in:\n{output}"
        at = found + len(line)
    return ""


def one_space(text: str) -> str:
    return re.sub(r" +", " ", text)
