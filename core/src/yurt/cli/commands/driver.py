"""`yurt driver`: write, test and serve task drivers.

`driver test` runs the tests in a Python of their own by pytest; a plugin of ours tells each result on a pipe, and here
they are printed. What pytest prints itself is shown only when it could not even collect.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from yurt import __version__
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import number, switch, text
from yurt.cli.json_object import Json

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from yurt.goplugin.serve import Offer
    from yurt.sdk.driver import Driver


NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
NAME_LENGTH_MAX = 40

PLACES = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "init.py.txt": "src/@module@/__init__.py",
    "plugin.py.txt": "src/@module@/plugin.py",
    "config.py.txt": "src/@module@/config.py",
    "driver.py.txt": "src/@module@/driver.py",
    "test_config.py.txt": "tests/test_@module@_config.py",
    "test_driver.py.txt": "tests/test_@module@.py",
}
"""The files of the template, and their paths in the package."""
SHORT = "short.py.txt"

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "OFF")
DETAILS = """A Nomad agent starts this command by itself, from a script in its plugin_dir that is named like the driver:

    #!/bin/sh
    exec yurt driver serve raw_exec

The driver is then configured by the agent's block `plugin "raw_exec" { config { ... } }`, and jobs use it by its name.
Tasks outlive this command and the agent."""
PLUGIN = "yurt.testing.driver_report"
SIMULATION = "yurt.testing.sim.foreign"
NEEDED = ("pytest", "pytest_asyncio")
MARKS = {"passed": "ok", "skipped": "skip", "failed": "FAIL"}
TAIL_LINES = 25
OUTPUT_MAX = 8000
END_LIMIT_S = 10.0


def new_driver(call: Invocation) -> int:
    """Write the package and print the next steps."""
    name = call.args[0]
    if not NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise UsageError(f'"{name}" is not a valid name for a driver; use small letters and digits, such as my-engine')
    folder = Path(call.flags.text("dir") or f"yurt-driver-{name}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CliError(f'"{folder}" exists and is not empty; name another folder with -dir')
    written = package_files(name, is_short=call.flags.is_on("short"))
    try:
        for place, content in written.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise CliError(f'"{folder}" cannot be written: {error.strerror}') from None
    call.screen.line(f"Wrote the driver {name}:")
    for place in written:
        call.screen.line(f"  {folder / place}")
    call.screen.line(f"\nTest it:     yurt driver test {folder}\nInstall it:  pip install -e {folder}")
    return 0


def package_files(name: str, *, is_short: bool) -> dict[str, str]:
    """The files of the package by their paths."""
    words = {
        "@name@": name,
        "@module@": "yurt_driver_" + name.replace("-", "_"),
        "@class@": "".join(word.capitalize() for word in re.split("[_-]", name)),
    }
    words["@make@"] = "make_driver" if is_short else f"{words['@class@']}Driver"
    template = files("yurt.cli").joinpath("driver_template")
    found = {}
    for source, place in PLACES.items():
        chosen = SHORT if is_short and source == "driver.py.txt" else source
        content = template.joinpath(chosen).read_text(encoding="utf-8")
        found[filled(place, words)] = filled(content, words)
    return found


def filled(template: str, words: dict[str, str]) -> str:
    """A text with its words put in."""
    for word, value in words.items():
        template = template.replace(word, value)
    return template


def serve_driver(call: Invocation) -> int:
    """Serve until the host ends it."""
    import asyncio
    import logging

    from yurt.goplugin.serve import default_folder, host_problem, serve
    from yurt.runtime.env import RealEnv
    from yurt.runtime.logs import set_up_logging

    name = call.args[0]
    folder = os.path.abspath(call.flags.text("state-dir") or default_folder(name))
    problem = host_problem(os.environ)
    found = find_plugin(name)
    if problem:
        raise CliError(problem)
    os.makedirs(folder, exist_ok=True, mode=0o700)
    level = call.flags.text("log-level").upper()
    if level not in LEVELS:
        raise CliError(f"-log-level {level} is not known; write one of: {', '.join(LEVELS)}")
    set_up_logging(level, as_json=True, stream=sys.stderr)
    logging.getLogger("grpc").setLevel(logging.ERROR)
    offer = offer_of(name, found, folder)
    asyncio.run(serve(offer, RealEnv(), environment=os.environ, say=lambda line: print(line, flush=True)))
    return 0


def find_plugin(name: str) -> EntryPoint:
    """The installed plugin with the driver; raises CliError that lists the available ones."""
    from importlib.metadata import entry_points

    from yurt.sdk.plugin import ENTRY_POINT_GROUP

    found = {each.name: each for each in entry_points(group=ENTRY_POINT_GROUP)}
    short = name.removesuffix("_driver")
    if name in found or short in found:
        return found.get(name) or found[short]
    installed = ", ".join(sorted(found)) or "none"
    raise CliError(f'No plugin "{name}" is installed; installed are: {installed}.')


def offer_of(name: str, plugin: EntryPoint, folder: str) -> Offer:
    """The driver as the plugin registers it; raises CliError when it has none of that name."""
    from yurt.goplugin.serve import Offer
    from yurt.plugins.manager import options_of
    from yurt.sdk.schema import Schema, schema_of

    options = options_of(plugin)
    first = make_driver(name, plugin, folder, {})
    return Offer(
        name=first.name,
        version=f"v{plugin.dist.version if plugin.dist else __version__}",
        options=schema_of(options) if options else Schema(),
        make=lambda config: make_driver(name, plugin, folder, config),
        folder=folder,
    )


def make_driver(name: str, plugin: EntryPoint, folder: str, config: Mapping[str, Any]) -> Driver:
    """The driver with a configuration; raises CliError with the reason when there is none."""
    from yurt.plugins.manager import make_parts
    from yurt.sdk.driver import AgentPaths, PluginContext
    from yurt.sdk.errors import DriverError
    from yurt.sdk.plugin import PluginSkipped

    paths = AgentPaths(state_dir=folder, run_dir=folder)
    try:
        drivers = make_parts(plugin, PluginContext(config=config, paths=paths)).drivers
    except PluginSkipped as reason:
        raise DriverError(f"The plugin {plugin.name} offers nothing on this machine: {reason}") from None
    named = [driver for driver in drivers if driver.name == name] or list(drivers[:1])
    if not named:
        raise CliError(f"The plugin {plugin.name} has no task driver.")
    return named[0]


def run_suite(call: Invocation) -> int:
    """Run the tests and report; 0 when none failed and the suite was included."""
    import tempfile

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
    with tempfile.TemporaryFile() as output_file:
        for line in results_of(call, target, output_file):
            if line["kind"] == "error":
                errors.append(f"{line['file']}:\n{line['text']}")
            elif line["kind"] == "collected":
                collected = line
            else:
                results.append(line)
                if not is_data:
                    show(call, line)
        output_file.seek(0)
        output = output_file.read().decode(errors="replace")
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


def results_of(call: Invocation, target: Path, output_file: IO[bytes]) -> Iterator[Json]:
    """The plugin's lines as they arrive."""
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
        words,
        cwd=package,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output_file,
        stderr=output_file,
        pass_fds=(write_end,),
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
    """One line for a test; for a failed one also the end of pytest's output."""
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
        import textwrap

        lines = line["text"].splitlines()
        shown = lines if call.flags.is_on("verbose") else lines[-TAIL_LINES:]
        call.screen.line(textwrap.indent("\n".join(shown), "        "))


def show_sum(call: Invocation, results: list[Json], took_s: float) -> None:
    """Print the numbers of passed, failed and skipped tests, and the conclusion."""
    counts = {outcome: sum(line["outcome"] == outcome for line in results) for outcome in MARKS}
    parts = [f"{count} {outcome}" for outcome, count in counts.items() if count]
    call.screen.line(f"\n{', '.join(parts) or 'no tests'} in {took_s:.1f} s")
    suite = [line for line in results if line["is_of_suite"]]
    if suite and not counts["failed"]:
        applied = sum(line["outcome"] == "passed" for line in suite)
        call.screen.line(f"The driver does what Yurt asks of a driver: {applied} of {len(suite)} rules apply to it.")


def simulate(call: Invocation) -> int:
    """Run seeds in a Python of their own and report; 0 when all were clean."""
    runs = call.flags.number("runs")
    if runs < 1 or call.flags.number("seconds") < 1:
        raise UsageError("-runs and -seconds must be at least 1")
    words = [sys.executable, "-m", SIMULATION, call.args[0], "--seed", str(call.flags.number("seed"))]
    words += ["--runs", str(runs), "--seconds", str(call.flags.number("seconds"))]
    if call.flags.text("faults"):
        words += ["--faults", call.flags.text("faults")]
    paths = filter(None, [os.getcwd(), os.path.join(os.getcwd(), "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"}
    process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    found: list[Json] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            found.append(json.loads(line))
            if "error" in found[-1]:
                raise CliError(found[-1]["error"])
            if not call.flags.is_on("json"):
                show_run(call, found[-1])
        process.wait()
    finally:
        process.kill()
        process.wait()
    has_failed = any(run["problem"] for run in found)
    if len(found) < runs and not has_failed:
        raise CliError(
            f"The simulation ended with status {process.returncode} after {len(found)} of {runs} runs; what it said is "
            "above"
        )
    if call.flags.is_on("json"):
        call.screen.line(json.dumps(found))
    return int(has_failed)


def show_run(call: Invocation, run: Json) -> None:
    """Print one run: a line, and for a failed one the violation, its last lines and the command that repeats it."""
    head = f"seed {run['seed']}: {run['starts']} starts, {run['faults']} faults, {run['virtual_s']:.0f} virtual seconds"
    if not run["problem"]:
        call.screen.line(f"ok    {head}")
        return
    call.screen.line(f"FAIL  {head}\n")
    for line in (*run["transcript"], "", run["problem"]):
        call.screen.line(f"  {line}")
    words = ["yurt driver sim -seed", str(run["seed"]), "-runs 1 -seconds", str(call.flags.number("seconds"))]
    if call.flags.text("faults"):
        words += ["-faults", call.flags.text("faults")]
    call.screen.line(f"\nRepeat it:  {' '.join((*words, call.args[0]))}")


COMMANDS = (
    CliCommand(
        "driver new",
        "Write a working driver package, with tests and a README",
        new_driver,
        (
            text("dir", "The folder to write; default is yurt-driver-NAME."),
            switch("short", "Leave the lifecycle to ProcessDriver, for tasks that are processes."),
        ),
        (1, 1),
        "<name>",
        "one argument: <name>",
        details="""
The package passes the suite as it is written: change its options and its steps one by one, and test after each. Its
driver runs a command as a process that outlives the agent; with -short the same in a dozen lines.
""",
        is_client=False,
    ),
    CliCommand(
        "driver serve",
        "Offer an installed driver to a Nomad agent as a plugin",
        serve_driver,
        (
            text("state-dir", "Where the driver keeps its state; default is /var/lib/yurt/served/NAME as root."),
            text(
                "log-level",
                "TRACE, DEBUG, INFO, WARN, ERROR or OFF: the lowest level of log lines; default is INFO.",
                default="INFO",
            ),
        ),
        arguments=(1, 1),
        usage="NAME",
        takes="one argument: the name of a driver",
        details=DETAILS,
        is_client=False,
    ),
    CliCommand(
        "driver sim",
        "Run a driver or a device plugin in simulated clusters under faults",
        simulate,
        (
            number("seed", "The first seed; default is 1.", default=1),
            number("runs", "The number of seeds; default is 5. The first that fails is the last.", default=5),
            number("seconds", "Virtual seconds of each run under faults; default is 60.", default=60),
            text("faults", "Only these faults, separated by commas; default is all that the plugin may notice."),
            switch("json", "Print the results as JSON."),
        ),
        (1, 1),
        "<module>:<name>",
        "one argument: <module>:<name>",
        details="""
The object is a yurt.testing.sim.foreign.drivers.SimulatedDriver or a yurt.testing.sim.foreign.devices.SimulatedDevices,
in the present folder, its folder src, or installed. It makes the plugin on a simulated machine. A seed gives the same
run each time.
""",
        is_client=False,
    ),
    CliCommand(
        "driver test",
        "Test a driver package against all that Yurt asks of a driver",
        run_suite,
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
    ),
)
