"""Commands of packages: found by metadata alone, imported for their own word, refused with a reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.cli.completion import candidates
from yurt.cli.main import main
from yurt.cli.package_nouns import _SECTION, package_nouns
from yurt.cli.tree import noun
from yurt.sdk.commands import ENTRY_POINT_GROUP

from .conftest import FixedApi, Run

GOOD = """
from yurt.sdk.commands import PackageCommand, CommandFailed, CommandFlag
from yurt.sdk.plugin import plugin_function

def show(call):
    if call.is_on("fail"):
        raise CommandFailed("no luck", code=3)
    call.table(("A", "B"), [(call.text("name"), call.number("count")), ("all", ",".join(call.texts("each")))])
    call.line(" ".join(call.args))
    call.json(call.get("/v1/thing", {"prefix": "x"}))
    return 0

@plugin_function
def yurt_commands():
    flags = (
        CommandFlag("fail", "bool", "Fail."), CommandFlag("name", "text", "A name."),
        CommandFlag("count", "int", "A number."), CommandFlag("each", "list", "Any."),
    )
    usage, details = "[<shelf> [<book>]]", "More about shelves."
    return [PackageCommand("shelf show", "Show a shelf", show, flags, (0, 2), usage, details)]
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, none yet."""
    monkeypatch.syspath_prepend(str(tmp_path))
    package_nouns.cache_clear()
    noun.cache_clear()
    yield tmp_path
    package_nouns.cache_clear()
    noun.cache_clear()
    sys.modules.pop("shelf_commands", None)


def install(site: Path, source: str, word: str = "shelf") -> None:
    (site / "shelf_commands.py").write_text(source)
    info = site / "my_shelf-1.2.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(f"[console_scripts]\nx = y\n[yurt.commands.v1]\n{word} = shelf_commands\n")


def test_a_command_gets_flags_arguments_and_the_api(site: Path, api: FixedApi, run: Run) -> None:
    install(site, GOOD)
    api.answers["/v1/thing"] = {"Shelf": 1}
    code, out, _ = run("shelf", "show", "-name=n", "-count=4", "-each=a", "-each=b", "s")
    assert (code, out) == (0, 'A    B\nn    4\nall  a,b\ns\n{\n    "Shelf": 1\n}\n')
    assert [path for _, path, _, _ in api.asked] == ["/v1/thing?prefix=x"]


def test_what_the_agent_refuses_ends_a_command(site: Path, api: FixedApi, run: Run) -> None:
    install(site, GOOD)
    api.answers["/v1/thing"] = (500, "out of shelves")
    code, _, err = run("shelf", "show")
    assert code == 1 and err.startswith("Error: out of shelves")


def test_a_failure_is_its_message_and_its_code(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, GOOD)
    assert main(["shelf", "show", "-fail"]) == 3
    assert capsys.readouterr().err == "no luck\n"


def test_help_names_the_word_without_importing_its_module(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "raise SystemExit(1)")
    assert main(["-help"]) == 0
    out = capsys.readouterr().out
    assert "Commands of packages:\n    shelf" in out and "Commands of the package my-shelf 1.2" in out
    assert "shelf_commands" not in sys.modules


def test_help_and_completion_know_the_commands(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, GOOD)
    assert "shelf" in candidates("yurt sh") and candidates("yurt shelf ") == ["show"]
    assert main(["shelf", "-help"]) == 0
    assert "show    Show a shelf" in capsys.readouterr().out
    assert main(["shelf", "show", "-help"]) == 0
    out = capsys.readouterr().out
    assert "More about shelves." in out and "-count=<value>" in out and "-address=<value>" in out
    assert main(["shelf", "shwo"]) == 1
    assert 'did you mean "shelf show"?' in capsys.readouterr().err


def test_a_word_of_yurt_stays_yurts(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "raise SystemExit(1)", word="job")
    assert main(["job", "run", "-help"]) == 0
    capsys.readouterr()
    assert main(["-help"]) == 0
    assert "not available, because Yurt has commands of that name" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(7)", "SystemExit: 7"),
        ("x = 1", "it declares no command"),
        (GOOD.replace('"shelf show"', '"job show"'), 'the command "job show" must begin with "shelf"'),
        (GOOD.replace('"Show a shelf"', '"Show a shelf."'), "must have 1 to 72 characters and no full stop"),
        (GOOD.replace('"int"', '"float"'), 'the flag -count of "shelf show" must be of the kind'),
        (GOOD.replace("(0, 2)", "(3, 2)"), "takes 3 to 2 arguments, which is impossible"),
        (GOOD.replace("def yurt_commands", "def yurt_comands"), "unknown hook 'yurt_comands'"),
    ],
)
def test_commands_that_cannot_be_used_say_why(
    site: Path, source: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, source)
    assert main(["shelf", "show"]) == 1
    err = capsys.readouterr().err
    assert "the commands of my-shelf 1.2" in err and reason in err and "Traceback" not in err


def test_yurts_own_commands_do_not_look_for_packages() -> None:
    program = (
        "import sys; from yurt.cli.main import main; main(['job', 'status', '-help']); "
        "print('yurt.cli.package_nouns' in sys.modules, 'pluggy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


def test_the_words_are_read_from_the_group_of_the_sdk() -> None:
    assert f"[{ENTRY_POINT_GROUP}]" == _SECTION
