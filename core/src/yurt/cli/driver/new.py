"""`yurt driver new`: a driver package that works and passes the suite, to be changed step by step."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text

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
"""Which file of the template becomes which of the package."""
SHORT = "short.py.txt"


def run(call: Invocation) -> int:
    """Write the package and say how to go on."""
    name = call.args[0]
    if not NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise UsageError(f'"{name}" is no name for a driver; use small letters and digits, such as my-engine')
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
    template = files("yurt.cli.driver").joinpath("template")
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


COMMAND = Command(
    "driver new",
    "Write a package with a task driver that works, its tests and its README.",
    run,
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
)
