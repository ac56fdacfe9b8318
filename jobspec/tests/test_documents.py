"""Files of plain values: native syntax and JSON give one tree, and each of its parts has a place."""

from __future__ import annotations

import pytest
from yurt_jobspec import JobspecError
from yurt_jobspec.diagnostics import SourceText
from yurt_jobspec.documents import read_document
from yurt_jobspec.syntax.jsonsyntax import JsonArray, JsonNode, JsonObject

NATIVE = """
a = -1
block "one" "two" {
  list = ["x", true, null, 1.5]
  map  = { key = "v", "quoted key" = "w" }
}
block { inner { } }
"""
JSON = """{
  "a": -1,
  "block": {"one": {"two": {"list": ["x", true, null, 1.5], "map": {"key": "v", "quoted key": "w"}}}},
  "block": {"inner": {}}
}"""


def plain(node: JsonNode) -> object:
    if isinstance(node, JsonObject):
        return [(name.text, plain(value)) for name, value in node.members]
    if isinstance(node, JsonArray):
        return [plain(item) for item in node.items]
    return node.value


def test_both_syntaxes_give_the_same_tree() -> None:
    assert plain(read_document(SourceText("f", NATIVE))) == plain(read_document(SourceText("f", JSON)))


def test_parts_come_in_the_order_of_the_file_with_their_places() -> None:
    source = SourceText("f", 'b { }\na = "x"\n')
    tree = read_document(source)
    assert [(name.text, source.position(name.start)) for name, _ in tree.members] == [("b", (1, 1)), ("a", (2, 1))]
    assert source.position(tree.members[1][1].start) == (2, 5)


@pytest.mark.parametrize(
    "text", ["a = b", 'a = "${b}"', "a = 1 + 2", 'a = f("x")', "a = { (b) = 1 }", "a = [for x in y : x]"]
)
def test_an_expression_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(JobspecError, match=r"^f:1:\d+: Expressions are not allowed"):
        read_document(SourceText("f", text))


def test_all_mistakes_of_the_syntax_are_told() -> None:
    with pytest.raises(JobspecError) as caught:
        read_document(SourceText("f", "a = \nb c\n"))
    assert len(caught.value.diagnostics) == 2


def test_what_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(JobspecError):
        read_document(SourceText("f", "a {\n" * 5000 + "}\n" * 5000))
