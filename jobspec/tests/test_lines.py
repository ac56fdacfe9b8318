"""Lines read without tokens: they mean what their tokens mean, and what they do not know is left to the tokens."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yurt_jobspec import JobspecError
from yurt_jobspec.diagnostics import SourceText
from yurt_jobspec.syntax import lines
from yurt_jobspec.syntax.lexer import MAX_NESTING
from yurt_jobspec.syntax.nodes import Body
from yurt_jobspec.syntax.parser import parse_tokens

KNOWN = {
    "a text": 'a = "text with $ and % and $$"',
    "a text of references": 'a = "${var.image}:${ local.a-b.c }-x"',
    "a text that is one reference": 'a = "${attr.kernel.name}"',
    "letters and their marks": 'a = "Zu\u0308rich ${node.unique.name} \u00e9"',
    "numbers": "a = 8080\nb = 1.50e3",
    "words": "a = true\nb = null\nc = docker\nd = var.count",
    "a list": 'a = [\n  "a",\n  1, var.x ,\r\n  "${b}",\n]\nb = []',
    "comments": '# one\n// two\na = 1 # three\nb { // four\n} # five\n# "six',
    "a heredoc": 'a = <<EOF\n  x\n\ty "$" \n EOF \nb = 1',
    "a heredoc without its indentation": "a = <<-EOF\n    x\n\t\n\n      y\n    EOF\n",
    "a heredoc whose blank lines are short": "a = <<-EOF\n    x\n \n\x0c\n \x0c z\n  y\nEOF\n",
    "an empty heredoc": "a = <<EOF\nEOF",
    "blocks": 'a "label" {\n  b {\n    c = 1\n  }\n  d "e" { to = 8080 }\n  f {}\n}\n',
    "Windows' line ends": 'a = 1\r\nb "c" {\r\n  d = <<EOF\r\nx\r\nEOF\r\n}\r\n',
    "a byte order mark": "\ufeffa = 1",
    "nothing": "",
}
OTHER = {
    "an operation": "a = 1 + 2\nb = 3",
    "a call": 'a {\n  b = upper("x") # c\n  c = 2\n}',
    "an escape": 'a = "\\n"\nb = "$${x} %%{y}"',
    "an object": "a = {\n  b = 1\n\n  c = [2]\n}\nd = 4",
    "a heredoc with references": "a = <<EOF\n${x}\nEOF\nb = 1",
    "labels without quotes": "a b {\n  c = 1\n}\nd e f { g = 1 }",
    "a comment within": "a = /* b */ 1\n/* c\n d */ e = 2",
    "letters beyond ASCII": "\u00e9t\u00e9 = 1\na = gr\u00f6\u00dfe",
}
MISTAKES = {
    "an argument set twice": "a = 1\na = 2",
    "a brace too few": "a {\n  b = 1\n",
    "a brace too many": "a {\n}\n}\n",
    "two arguments on a line": "a = 1 b = 2",
    "a block that goes on behind its line": "a { b = 1\n c = 2 }",
    "a heredoc without an end": "a = <<EOF\nb = 1",
    "a text without an end": 'a = "b\nc = 1',
    "a number out of bounds": "a = 1e5000",
    "half a surrogate pair": 'a = "\ud800"',
    "blocks too deep": "a {\n" * MAX_NESTING + "}\n" * MAX_NESTING,
    "brackets too deep for where they stand": "a {\n" * 98 + "b = [[1]]\n" + "}\n" * 98,
    "a for expression where a body belongs": "a {\n  for b in c : d\n}\n",
}
SIGNS = [*"aE={}[],.1 \t\n\u00e9\u0308\x0c\ufeff", "${", "%{", "$$", "//", "/*", "*/", "\r\n"]
WORDS = ["b.c", "for", "true", "null", "-1", '"x"', '"${y}"', '"$', "# c\n", "<<E\n", "<<-E\n", "  E\n"]
PIECES = st.sampled_from(SIGNS + WORDS)
LINES = st.sampled_from([text + "\n" for text in (*KNOWN.values(), *OTHER.values())])
TEXTS = st.lists(st.one_of(PIECES, LINES), max_size=12).map("".join)


def by_tokens(text: str, *, is_lenient: bool = False) -> Body | None:
    """What the tokens say; None for a mistake."""
    try:
        return parse_tokens(SourceText("a.hcl", text), is_lenient=is_lenient)
    except JobspecError:
        return None


@pytest.mark.parametrize("name", KNOWN)
def test_what_lines_say_is_read_without_the_lexer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = by_tokens(KNOWN[name])
    monkeypatch.delattr(lines, "tokenize_item")

    assert lines.read_body(KNOWN[name], is_lenient=False) == expected is not None


@pytest.mark.parametrize("name", OTHER)
def test_other_items_are_read_by_their_tokens(name: str) -> None:
    assert lines.read_body(OTHER[name], is_lenient=False) == by_tokens(OTHER[name]) is not None


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_left_to_the_tokens(name: str) -> None:
    assert lines.read_body(MISTAKES[name], is_lenient=False) is by_tokens(MISTAKES[name]) is None


@pytest.mark.parametrize("is_lenient", [False, True])
@settings(max_examples=500, deadline=None)
@example("a = 1 }\n")
@example('"a" = 1, b = 2\nc "d" { e = 1, f = 2 }\n')
@given(TEXTS)
def test_lines_and_tokens_agree(is_lenient: bool, text: str) -> None:
    found = lines.read_body(text, is_lenient=is_lenient)

    # Types are part of what must agree, and named tuples of different types are equal.
    assert repr(found) == repr(by_tokens(text, is_lenient=is_lenient))
