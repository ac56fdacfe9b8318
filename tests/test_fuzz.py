"""Every fuzz target of the core still runs: over its seeds, their damaged copies, and nothing at all."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HARNESS = Path(__file__).parents[1] / "core/fuzz/harness.py"


def load_harness() -> ModuleType:
    """The harness, which is a script and no module of a package."""
    spec = importlib.util.spec_from_file_location("core_fuzz_harness", HARNESS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


harness = load_harness()


@pytest.mark.parametrize("name", list(harness.TARGETS))
def test_a_fuzz_target_bears_its_seeds_and_their_damaged_copies(name: str) -> None:
    target, seeds = harness.load(name)
    target(b"")
    for seed in seeds:
        target(seed)
        target(seed[: len(seed) // 2])
        target(bytes(byte ^ (position % 7 == 0) for position, byte in enumerate(seed)))
