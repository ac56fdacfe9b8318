"""A package whose import failed half-way is imported whole the next time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from threading import Event

import pytest
from yurt.sdk.containers.packages import import_whole

LIMIT_S = 30.0
Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write modules that can be imported while the test runs; the tests' own names begin with `half_`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write_module(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    yield write_module
    for name in tuple(sys.modules):
        if name.startswith("half_"):
            del sys.modules[name]


def write_package(write: Write, name: str, *, fails: str) -> None:
    """A package that takes its parts as attributes, and fails after it has imported one of them."""
    write(f"{name}/parts.py", "import sys\nTRIES = sys.__dict__.setdefault('half_tries', [])\nTRIES.append(1)\n")
    write(f"{name}/__init__.py", f"import {name}.parts\n{fails}\ntries = len({name}.parts.TRIES)\n")


@pytest.fixture(autouse=True)
def no_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often the part was run, counted where no import starts anew."""
    monkeypatch.setattr(sys, "half_tries", [], raising=False)


ONCE = "if len({name}.parts.TRIES) == 1: raise {error}('half-way')"


@pytest.mark.parametrize("error", ["ImportError", "AttributeError"])
def test_what_fails_the_first_time_is_tried_at_once_again(write: Write, error: str) -> None:
    name = f"half_{error.lower()}"
    write_package(write, name, fails=ONCE.format(name=name, error=error))
    finders = list(sys.meta_path)
    assert import_whole(name).tries == 2
    assert sys.meta_path == finders
    assert import_whole(name) is sys.modules[name]


def test_python_alone_would_never_import_it_again(write: Write) -> None:
    write_package(write, "half_plain", fails=ONCE.format(name="half_plain", error="ImportError"))
    with pytest.raises(ImportError):
        import_module("half_plain")
    with pytest.raises(AttributeError):
        import_module("half_plain")
    assert import_whole("half_plain").tries == 2


def test_an_import_that_fails_again_leaves_nothing_and_may_pass_later(write: Write) -> None:
    fails = "if len(half_later.parts.TRIES) < 3: raise ImportError('not yet')"
    write_package(write, "half_later", fails=fails)
    with pytest.raises(ImportError, match="not yet"):
        import_whole("half_later")
    assert not [name for name in sys.modules if name.startswith("half_later")]
    assert import_whole("half_later").tries == 3


def test_what_was_there_before_and_what_other_threads_import_stays(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("half_before.py", "")
    write("half_other.py", "")
    write_package(write, "half_failing", fails="import half_before, half_door\nraise ImportError('never')")
    write("half_door.py", "import sys\nsys.half_begun.set()\nassert sys.half_may_end.wait(30)\n")
    before = import_module("half_before")
    begun, may_end = Event(), Event()
    monkeypatch.setattr(sys, "half_begun", begun, raising=False)
    monkeypatch.setattr(sys, "half_may_end", may_end, raising=False)
    with ThreadPoolExecutor(1) as threads:
        failing = threads.submit(import_whole, "half_failing")
        assert begun.wait(LIMIT_S)
        other = import_module("half_other")
        may_end.set()
        assert isinstance(failing.exception(LIMIT_S), ImportError)
    assert (sys.modules["half_before"], sys.modules["half_other"]) == (before, other)
    assert "half_failing" not in sys.modules and "half_door" not in sys.modules


def test_modules_of_the_standard_library_stay(write: Write) -> None:
    write("half_standard.py", "import colorsys\nraise ImportError('never')\n")
    sys.modules.pop("colorsys", None)
    with pytest.raises(ImportError, match="never"):
        import_whole("half_standard")
    assert "colorsys" in sys.modules
