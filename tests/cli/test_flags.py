"""Flags are read as Go reads them, and a little kinder."""

from __future__ import annotations

import pytest
from yurt.cli import flags
from yurt.cli.errors import UsageError
from yurt.cli.flags import parse

KNOWN = (
    flags.switch("detach", ""),
    flags.switch("diff", "", default=True),
    flags.text("check-index", ""),
    flags.number("n", "", default=-1),
    flags.texts("var", ""),
    flags.choice("pause", ""),
)


def test_one_dash_and_two_dashes_are_equal() -> None:
    one, _ = parse(["-detach", "-check-index", "5"], KNOWN)
    two, _ = parse(["--detach", "--check-index=5"], KNOWN)

    assert one.is_on("detach") and two.is_on("detach")
    assert one.text("check-index") == two.text("check-index") == "5"


def test_a_repeated_flag_keeps_its_values_in_order() -> None:
    found, arguments = parse(["-var", "a=1", "-var=b=c=d", "x.hcl"], KNOWN)

    assert found.texts("var") == ["a=1", "b=c=d"]
    assert arguments == ["x.hcl"]


def test_flags_are_taken_after_arguments_too() -> None:
    found, arguments = parse(["x.hcl", "-detach", "y"], KNOWN)

    assert found.is_on("detach")
    assert arguments == ["x.hcl", "y"]


def test_a_command_that_passes_its_tail_on_stops_at_the_first_argument() -> None:
    found, arguments = parse(["-detach", "id", "ls", "-n"], KNOWN, stop_at_argument=True)

    assert found.is_on("detach")
    assert arguments == ["id", "ls", "-n"]


def test_a_switch_takes_its_value_only_after_an_equals_sign() -> None:
    found, arguments = parse(["-diff=false", "-detach", "false"], KNOWN)

    assert not found.is_on("diff")
    assert found.is_on("detach")
    assert arguments == ["false"]


def test_a_switch_of_three_states_can_stay_unset() -> None:
    unset, _ = parse([], KNOWN)
    off, _ = parse(["-pause=false"], KNOWN)

    assert unset.choice("pause") is None
    assert off.choice("pause") is False


def test_two_dashes_alone_end_the_flags_and_one_dash_alone_is_an_argument() -> None:
    found, arguments = parse(["-", "--", "-detach"], KNOWN)

    assert not found.is_on("detach")
    assert arguments == ["-", "-detach"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-detach=maybe"], 'invalid boolean value "maybe" for -detach'),
        (["-n", "x"], 'invalid value "x" for flag -n'),
        (["-var"], "flag needs an argument: -var"),
        (["-detahc"], 'flag provided but not defined: -detahc (did you mean "-detach"?)'),
        (["-zzzzzz"], "flag provided but not defined: -zzzzzz"),
        (["---detach"], "bad flag syntax: ---detach"),
    ],
)
def test_a_wrong_flag_is_told_in_one_sentence(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words, KNOWN)

    assert str(caught.value).startswith(complaint)
