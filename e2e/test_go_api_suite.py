"""The own tests of Nomad's Go API package, as its authors run them: most of them start an agent, and talk to it.

The Go registry serves the module with its tests; nothing of it is in this repository. The tests find their agent as
the program `nomad` of the PATH. More than half start an agent of their own, so that all of them take minutes of
processor time: `make nightly` runs all, other runs some of each kind of object.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from yurt.testing.nightly import is_nightly
from yurt.testing.processes import ended_at_exit
from yurt.testing.services.fork_server import forking_program
from yurt.testing.services.go_programs import build_go_tests, fetched_module, run_go

pytestmark = pytest.mark.timeout(1_500)

MODULE = "github.com/hashicorp/nomad/api"
VERSION = "v0.0.0-20261016150620-df630b26e78a"
OLDEST_GO = (1, 26)
RUN_LIMIT_S, ALONE_LIMIT_S = 900, 60
AT_ONCE = 2
"""How many tests run at once, each with one or two agents."""
ELSEWHERE = {
    "TestAcquireLock_MultipleInstances": "it asks no agent, and measures its own goroutines by milliseconds",
}
"""Tests that say nothing about an agent, with the reason."""
FAILS_WITH_REASON = {
    "TestACLTokens_Info":
        "a management token reads the secret of another token, of which Yurt stores a hash only",
}  # fmt: skip
"""Tests that fail, with the difference. One that passes by now must be taken out."""
PASSED_MIN = 250
"""Of all tests."""
SAMPLE = 5
"""Outside of `make nightly`, one test in this number runs for each kind of object, and at least one."""
RESULT = re.compile(r"^--- (PASS|FAIL|SKIP): (Test\w*) ", re.MULTILINE)


class Suite(NamedTuple):
    """The folder of the suite, with its tests as `api.test`, and the descriptors that they must inherit."""

    folder: Path
    inherited: tuple[int, ...]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """The suite with its tests built; skips where it cannot be fetched or built."""
    folder = tmp_path_factory.mktemp("go-api")
    (folder / "asking").mkdir()
    (folder / "asking" / "go.mod").write_text(f"module yurt.test/suite\n\ngo 1.26\n\nrequire {MODULE} {VERSION}\n")
    asking = fetched_module(folder / "asking", folder, oldest=OLDEST_GO)
    listed = run_go(asking, "mod", "download", "-json", f"{MODULE}@{VERSION}")
    shutil.copytree(json.loads(listed.stdout)["Dir"], folder / "api", copy_function=shutil.copyfile)
    for each in (folder / "api", *(folder / "api").rglob("*")):
        each.chmod(0o755)
    build_go_tests(folder / "api", folder / "api.test")
    (folder / "bin").mkdir()
    with forking_program(folder / "bin" / "nomad") as inherited:
        yield Suite(folder, inherited)


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[None]:
    """Ends agents that a test left behind: their configuration is in the folder of temporary files."""
    with ended_at_exit(lambda words: any(word.startswith(f"{tmp_path}/") for word in words)):
        yield


def results(suite: Suite, folder: Path, *flags: str, limit_s: int) -> tuple[dict[str, str], str]:
    """The results of the tests that ended in time, by name, and all output."""
    path = f"{suite.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "TMPDIR": str(folder)}
    # An agent that compiles all of its modules again at each start may exceed the time that the suite gives it.
    env = {name: env[name] for name in env if not name.startswith("NOMAD_") and name != "PYTHONDONTWRITEBYTECODE"}
    command = [suite.folder / "api.test", "-test.v", f"-test.timeout={limit_s}s", f"-test.parallel={AT_ONCE}", *flags]
    with (folder / "output").open("w+") as output:
        subprocess.run(
            command, cwd=suite.folder / "api", env=env, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, timeout=limit_s + 30, check=False, pass_fds=suite.inherited,
        )  # fmt: skip
        output.seek(0)
        text = output.read()
    return {name: result for result, name in RESULT.findall(text)}, text


def one_of(names: Iterable[str]) -> str:
    return f"^({'|'.join(sorted(names))})$"


def listed_tests(suite: Suite) -> set[str]:
    words = subprocess.run(
        [suite.folder / "api.test", "-test.list=."], capture_output=True, text=True, check=True
    ).stdout
    return {word for word in words.split() if word.startswith("Test")}


def sampled(names: Iterable[str]) -> set[str]:
    """Some tests of each kind of object: of `TestJobs_Register` and `TestJobs_Plan` the kind is `TestJobs`."""
    kinds: dict[str, list[str]] = {}
    for name in sorted(names):
        kinds.setdefault(name.partition("_")[0], []).append(name)
    return {name for names in kinds.values() for name in names[::SAMPLE]}


def test_a_sample_has_tests_of_each_kind() -> None:
    names = [f"TestJobs_{number}" for number in range(11)] + ["TestAgent_Self", "TestNodes_List"]
    assert sampled(names) == {"TestJobs_0", "TestJobs_4", "TestJobs_9", "TestAgent_Self", "TestNodes_List"}


def test_the_suite_of_nomads_go_package_passes(suite: Suite, tmp_path: Path, ended: None) -> None:
    listed = listed_tests(suite) - ELSEWHERE.keys()
    asked = listed if is_nightly() else sampled(listed)

    found, _ = results(suite, tmp_path, f"-test.run={one_of(asked)}", limit_s=RUN_LIMIT_S)

    outputs = {}
    for name in sorted(asked - {name for name, result in found.items() if result != "FAIL"}):
        # The suite gives an agent ten seconds to start, which a busy machine exceeds: what failed runs again alone.
        again, outputs[name] = results(suite, tmp_path, f"-test.run={one_of([name])}", limit_s=ALONE_LIMIT_S)
        found[name] = again.get(name, "FAIL")
    failed = {name for name in asked if found[name] == "FAIL"}
    assert failed == FAILS_WITH_REASON.keys() & asked, "\n\n".join(outputs[name] for name in sorted(failed))
    assert sum(found[name] == "PASS" for name in asked) >= PASSED_MIN * len(asked) // len(listed)
