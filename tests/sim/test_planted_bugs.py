"""Planted bugs: each still applies to the source, and a few of them, others each day, are found."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import yurt
from yurt.testing.nightly import is_nightly
from yurt.testing.sim.planted.patch import Patch
from yurt.testing.sim.seeded_bugs import BUGS, changed

SOURCE = Path(yurt.__file__).parent.parent
QUICK = (
    "apply-reads-its-own-clock", "cluster-gets-a-second-id", "completed-batch-runs-again",
    "dispatch-token-is-forgotten", "event-is-skipped", "final-status-is-taken-back", "lock-is-given-twice",
    "names-are-given-twice", "quota-is-overrun", "revoked-token-is-accepted", "unknown-append-counts-as-stored",
)  # fmt: skip
"""Found within seconds."""
FOUND_TODAY = 5


def todays() -> list[str]:
    """All of them nightly, else some of the quick ones."""
    if is_nightly():
        return sorted(BUGS)
    day = datetime.date.today().toordinal()
    return sorted({QUICK[(day + at) % len(QUICK)] for at in range(FOUND_TODAY)})


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_bug_applies_to_the_source(name: str) -> None:
    patches = defaultdict[str, list[Patch]](list)
    for patch in BUGS[name].patches:
        patches[patch.module].append(patch)
    for module, own in patches.items():
        path = SOURCE / f"{module.replace('.', '/')}.py"
        source = path.read_text("utf-8")
        made = changed(source, own)
        assert made != source
        compile(made, str(path), "exec")


def test_a_text_that_is_gone_is_told() -> None:
    with pytest.raises(ValueError, match="has 0 times"):
        changed("x = 1", [Patch("m", "y = 2", "y = 3")])


# Workers of one run may collect on two days: their tests have the same names nevertheless.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", todays(), ids=None if is_nightly() else [f"today's {at}" for at in range(FOUND_TODAY)])
def test_a_bug_is_found(name: str) -> None:
    command = [sys.executable, "-m", "yurt.testing.sim", "--planted", name]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
