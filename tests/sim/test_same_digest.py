"""`make sim-digests`: seeds run in two interpreters, a difference is shown, and the ledger tells where to go on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from yurt.testing.sim.campaign import same_digest
from yurt.testing.sim.campaign.same_digest import Digested, Interpreter, Work, compare, first_difference, read_rows

TINY = {"clients": 1, "users": 1, "active_s": 1.0, "rest_actions": 0, "features": ("service",), "has_acl": False}
LEDGER = "before\n<!-- sim-digests: begin -->\n<!-- sim-digests: end -->\nafter\n"
Runs = Callable[[Interpreter, Work], dict[int, Digested]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.md"
    path.write_text(LEDGER, "utf-8")
    return path


def fake(monkeypatch: pytest.MonkeyPatch, differing: int = 0) -> list[tuple[int, ...]]:
    """Interpreters whose runs differ for one seed; returns the seeds that each process gets."""
    got = list[tuple[int, ...]]()

    def run(interpreter: Interpreter, work: Work) -> dict[int, Digested]:
        got.append(tuple(plan.seed for plan in work.plans))
        mark = f"of {interpreter.hash_seed}"
        return {
            seed: Digested(seed=seed, digest=mark if seed == differing else "one", lines=("begin", mark))
            for seed in got[-1]
        }

    monkeypatch.setattr(same_digest.Interpreter, "run", run)
    return got


@pytest.mark.timeout(300)
def test_two_hash_seeds_give_a_seed_the_same_digest(path: Path) -> None:
    told = list[str]()

    exit_code = compare(2, path, tell=told.append, fixed=TINY)

    (row,) = read_rows(path.read_text("utf-8"))
    assert (exit_code, row.first, row.last, row.differing) == (0, 1, 2, ()), told
    assert told == ["seeds 1-2: 2 of 2 have one digest"]


def test_the_next_call_continues_with_the_next_seed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got = fake(monkeypatch)
    compare(12, path, tell=lambda _: None)
    compare(3, path, tell=lambda _: None)

    assert [set(each) for each in got[::2]] == [set(range(1, 11)), {11, 12}, {13, 14, 15}]
    text = path.read_text("utf-8")
    assert [(row.first, row.last) for row in read_rows(text)] == [(1, 15)]
    assert text.startswith("before\n") and text.endswith("after\n")


def test_one_interpreter_runs_the_seeds_in_reverse_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got = fake(monkeypatch)
    compare(3, path, tell=lambda _: None)
    assert sorted(got) == [(1, 2, 3), (3, 2, 1)]


def test_a_change_of_the_state_machines_begins_a_row(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    compare(1, path, tell=lambda _: None)
    monkeypatch.setattr(same_digest.ledger, "fingerprint", lambda _: "0123456789ab")
    compare(1, path, tell=lambda _: None)
    assert [(row.first, row.last) for row in read_rows(path.read_text("utf-8"))] == [(1, 1), (2, 2)]


def test_a_seed_with_two_digests_is_told_and_recorded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, differing=2)
    told = list[str]()

    exit_code = compare(3, path, tell=told.append)

    assert exit_code == 1 and read_rows(path.read_text("utf-8"))[0].differing == (2,)
    assert told[0].startswith("seed 2 has two digests; line 2 is\n    of 1\n    of 2\n  replay: ")
    assert told[1] == "seeds 1-3: 2 of 3 have one digest"


def test_transcripts_of_another_length_differ_at_their_end() -> None:
    assert first_difference(["a"], ["a", "b"]) == "line 2 is\n    the end\n    b"
    assert first_difference(["a"], ["a"]).startswith("alone in its process")


def test_an_interpreter_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="ended with 1"):
        Interpreter(path="/bin/false", hash_seed=1).run(Work(plans=()))


@pytest.mark.timeout(300)
def test_a_run_is_the_same_first_and_later_in_a_process() -> None:
    program = (
        "from yurt.testing.sim.plan import draw\n"
        "from yurt.testing.sim.run import run_plan\n"
        f"print(len({{run_plan(draw(1, **{TINY})).digest for _ in range(2)}}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
