"""Every fuzz target of the core still runs: over its seeds, their damaged copies, and nothing at all."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[1] / "core/fuzz"


def load_script(name: str) -> ModuleType:
    """A script of the folder, which is no module of a package."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


harness = load_script("harness")
campaign = load_script("campaign")


@pytest.mark.parametrize("name", list(harness.TARGETS))
def test_a_fuzz_target_bears_its_seeds_and_their_damaged_copies(name: str) -> None:
    target, seeds = harness.load(name)
    target(b"")
    for seed in seeds:
        target(seed)
        target(seed[: len(seed) // 2])
        target(bytes(byte ^ (position % 7 == 0) for position, byte in enumerate(seed)))


def test_an_input_without_an_end_is_interrupted_by_its_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def loops(_data: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(harness, "CPU_LIMIT_S", 0.02)
    before = signal.getsignal(signal.SIGPROF)
    try:
        with pytest.raises(TimeoutError, match="one input takes more than"):
            harness.timed(loops)(b"")
    finally:
        signal.signal(signal.SIGPROF, before)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_runs_over_the_same_code_are_one_row_of_the_ledger_and_others_stay() -> None:
    row = campaign.Row
    text = "# Title\n" + campaign.BEGIN + "\n" + campaign.END + "\nend\n"
    for run in (
        row("cron", "0123456789ab", 10, 0.5),
        row("body", "0123456789ab", 7, 0.25, "crash-1"),
        row("cron", "0123456789ab", 5, 0.25),
        row("body", "0123456789ab", 1, 0.25),
        row("cron", "ba9876543210", 1, 0.125),
    ):
        text = campaign.with_run(text, run)

    assert text.startswith("# Title\n") and text.endswith("\nend\n")
    assert campaign.read_rows(text) == [
        row("body", "0123456789ab", 8, 0.5, "crash-1"),
        row("cron", "0123456789ab", 15, 0.75),
        row("cron", "ba9876543210", 1, 0.125),
    ]


def test_the_ledger_of_the_documentation_can_be_read() -> None:
    assert {row.target for row in campaign.read_rows(campaign.LEDGER.read_text())} <= set(harness.TARGETS)


@pytest.mark.parametrize("name", list(harness.TARGETS))
def test_the_code_that_a_target_exercises_is_found(name: str) -> None:
    ours = [each for each in harness.TARGETS[name].instrumented if each.startswith("yurt.")]
    assert ours and all(campaign.sources_of(each) for each in ours)
    assert len(campaign.code_of(name)) == 12
