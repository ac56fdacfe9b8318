"""`yurt driver test`: does a driver package do all that Yurt asks of a driver?

The tests run in a Python of their own by pytest; a plugin of ours tells each result on a pipe, and here they are
printed. What pytest prints itself is shown only when it could not even collect.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, text

Json = dict[str, Any]

PLUGIN = "yurt.testing.driver_report"
NEEDED = ("pytest", "pytest_asyncio")
MARKS = {"passed": "ok", "skipped": "skip", "failed": "FAIL"}
TAIL_LINES = 25
OUTPUT_MAX = 8000
END_LIMIT_S = 10.0


def run(call: Invocation) -> int:
    """Run the tests and report; 0 when none failed and the suite was among them."""
    target = Path(call.args[0] if call.args else ".").resolve()
    if not target.exists():
        raise CliError(f'There is nothing at "{target}"; name the folder of a driver package')
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise CliError(f"Testing needs {' and '.join(missing)}: pip install 'yurt[testing]'")
    began = time.monotonic()
    results: list[Json] = []
    collected: Json = {}
    errors: list[str] = []
    is_data = call.flags.is_on("json")
    with tempfile.TemporaryFile() as said:
        for line in results_of(call, target, said):
            if line["kind"] == "error":
                errors.append(f"{line['file']}:\n{line['text']}")
            elif line["kind"] == "collected":
                collected = line
            else:
                results.append(line)
                if not is_data:
                    show(call, line)
        said.seek(0)
        output = said.read().decode(errors="replace")
    if errors or not collected:
        raise CliError("The tests could not be collected.\n\n" + ("\n".join(errors) or output)[-OUTPUT_MAX:])
    if is_data:
        sys.stdout.write(json.dumps({"Collected": collected["tests"], "Results": results}, indent=2) + "\n")
    else:
        show_sum(call, results, time.monotonic() - began)
    chosen = call.flags.text("k")
    if chosen and not collected["tests"]:
        raise CliError(f"No test is chosen by -k {chosen!r}")
    if not collected["suite"] and not chosen:
        raise CliError(
            "None of the tests is of the driver suite: write a class Test...(yurt.testing.driver_suite.DriverSuite); "
            "`yurt driver new` shows one"
        )
    is_whole = len({(line["file"], line["owner"], line["name"]) for line in results}) >= collected["tests"]
    if not is_whole:
        raise CliError(f"The tests ended early:\n\n{output[-OUTPUT_MAX:]}")
    return int(any(line["outcome"] == "failed" for line in results))


def results_of(call: Invocation, target: Path, said: IO[bytes]) -> Iterator[Json]:
    """The lines of the plugin as they come."""
    package = target if target.is_dir() else package_of(target)
    read_end, write_end = os.pipe()
    environment = {**os.environ, "YURT_DRIVER_REPORT": str(write_end)}
    source = package / "src"
    paths = [str(source)] if source.is_dir() else []
    environment["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH", "")])])
    tests = target / "tests" if (target / "tests").is_dir() else target
    words = [sys.executable, "-m", "pytest", str(tests), "--rootdir", str(package), "-p", PLUGIN, "-o", "addopts="]
    words += ["-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-q"]
    if call.flags.text("k"):
        words += ["-k", call.flags.text("k")]
    if call.flags.text("junit"):
        words.append(f"--junitxml={Path(call.flags.text('junit')).resolve()}")
    process = subprocess.Popen(
        words, cwd=package, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, pass_fds=(write_end,)
    )
    os.close(write_end)
    try:
        with open(read_end, encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that should end by now, and end it when it does not."""
    try:
        process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()


def package_of(path: Path) -> Path:
    """The folder above a file that has a pyproject.toml, else the file's own."""
    return next((folder for folder in path.parents if (folder / "pyproject.toml").is_file()), path.parent)


def sentence(name: str) -> str:
    """test_stop_ends_a_task[True] as "stop ends a task [True]"."""
    plain, bracket, rest = name.partition("[")
    return plain.removeprefix("test_").replace("_", " ") + (f" [{rest}" if bracket else "")


def show(call: Invocation, line: Json) -> None:
    """One test, one line; of a failed one the end of what pytest says."""
    outcome = line["outcome"]
    words = sentence(line["name"])
    style = {"passed": "green", "skipped": "yellow", "failed": "bold red"}[outcome]
    mark = call.screen.style(f"{MARKS[outcome]:4}", style)
    if outcome == "skipped":
        call.screen.line(f"  {mark}  {words}: {line['reason']}")
        return
    took = f"  ({line['duration_s']:.1f} s)" if line["duration_s"] >= 1 else ""
    call.screen.line(f"  {mark}  {words}{took}")
    if outcome == "failed":
        lines = line["text"].splitlines()
        shown = lines if call.flags.is_on("verbose") else lines[-TAIL_LINES:]
        call.screen.line(textwrap.indent("\n".join(shown), "        "))


def show_sum(call: Invocation, results: list[Json], took_s: float) -> None:
    """How many went how, and what that means."""
    counts = {outcome: sum(line["outcome"] == outcome for line in results) for outcome in MARKS}
    parts = [f"{count} {outcome}" for outcome, count in counts.items() if count]
    call.screen.line(f"\n{', '.join(parts) or 'no tests'} in {took_s:.1f} s")
    suite = [line for line in results if line["is_of_suite"]]
    if suite and not counts["failed"]:
        applied = sum(line["outcome"] == "passed" for line in suite)
        call.screen.line(f"The driver does what Yurt asks of a driver: {applied} of {len(suite)} rules apply to it.")


COMMAND = Command(
    "driver test",
    "Test a driver package against all that Yurt asks of a driver.",
    run,
    (
        text("junit", "Also write the report into this file, as JUnit XML."),
        text("k", "Only the tests that this expression of pytest chooses."),
        switch("verbose", "Print all that is known about a failure."),
        switch("json", "Print the results as JSON."),
    ),
    (0, 1),
    "[<path>]",
    "at most one argument: <path>",
    details="""
The path is the folder of a package, or one file of tests; without it the present folder. The package need not be
installed. What does not apply to the driver, by its capabilities and its cases, is skipped with the reason.
""",
    is_client=False,
)
