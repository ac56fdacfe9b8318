"""Builds the Go programs that tests run: clients, plugins and tools that others wrote for Nomad."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BUILD_LIMIT_S = 600
UNOPTIMISED = ("-gcflags=all=-N -l", "-ldflags=-s -w")
"""Flags that spare a quarter of the processor time of a first build."""


def run_go(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the Go toolchain that is installed, without a C compiler and without another toolchain."""
    env = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}
    return subprocess.run(
        ["go", *words], cwd=folder, env=env, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False
    )


def fetched_module(sources: Path, folder: Path, *, oldest: tuple[int, int]) -> Path:
    """Copy a module and fetch those that it needs; the copy. Skips where Go is missing, too old or cut off."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    version = run_go(folder, "env", "GOVERSION").stdout.strip()
    if tuple(map(int, version.removeprefix("go").split(".")[:2])) < oldest:
        pytest.skip(f"{version} is too old for {sources.name}: it needs go{oldest[0]}.{oldest[1]}")
    source = shutil.copytree(sources, folder / "source")
    if (fetched := run_go(source, "mod", "download")).returncode:
        pytest.skip(f"the Go modules of {sources.name} cannot be fetched: {fetched.stderr.strip().splitlines()[-1]}")
    return source


def build_go(source: Path, folder: Path, *packages: str) -> None:
    """Build programs into a folder, each under the name of its package."""
    built = run_go(source, "build", *UNOPTIMISED, "-o", f"{folder}/", *packages)
    assert built.returncode == 0, built.stderr


def build_go_tests(source: Path, program: Path) -> None:
    """Build the tests of a package into one program."""
    built = run_go(source, "test", "-c", *UNOPTIMISED, "-o", str(program), ".")
    assert built.returncode == 0, built.stderr
