"""Parses tokens to a tree and refuses what is wrong whatever the data: unknown functions and variables, loops' words
outside loops, blocks without an end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from yurt.gotemplate.errors import EvaluationFailure, TemplateError
from yurt.gotemplate.lexer import Token
from yurt.gotemplate.limits import NESTING_MAX
from yurt.gotemplate.literals import character, number, unquoted
from yurt.gotemplate.nodes import (
    ActionNode,
    Body,
    Break,
    Called,
    Chain,
    CommandNode,
    Continue,
    Dot,
    If,
    Include,
    LiteralNode,
    Nested,
    Nil,
    Node,
    Operand,
    Pipeline,
    Range,
    Text,
    VariableNode,
    With,
)
from yurt.gotemplate.source import TemplateText

V = TypeVar("V")
_BRANCHES: dict[str, type[If] | type[With] | type[Range]] = {"if": If, "with": With, "range": Range}
_OPERANDS = frozenset(("dot", "field", "variable", "word", "number", "quoted", "raw", "character", "(", "keyword"))


class Parser:
    """One template's tokens on their way to trees; `templates` holds what `define` and `block` name.

    Without `functions` any name may be one.
    """

    def __init__(self, source: TemplateText, tokens: list[Token], functions: Collection[str] | None) -> None:
        self.templates: dict[str, Body] = {}
        self._source = source
        self._tokens = tokens
        self._next = 0
        self._functions = functions
        self._variables = ["$"]
        self._depth = 0
        self._loops = 0

    def whole(self) -> Body:
        """The tree of the whole template."""
        nodes: list[Node] = []
        while self._peek().kind != "end":
            if self._peek().kind == "left" and self._peek(1).text == "define":
                self._define()
                continue
            word, found = self._body()
            nodes += found
            if word is not None and word.text != "define":
                raise self._error(word, f"unexpected {{{{{word.text}}}}}")
        return tuple(nodes)

    def _peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._peek()
        self._next += 1
        return token

    def _error(self, token: Token, problem: str) -> TemplateError:
        return self._source.error(token.at, problem)

    def _expect(self, kind: str, where: str) -> Token:
        token = self._take()
        if token.kind != kind:
            raise self._error(token, f"unexpected {_named(token)} in {where}")
        return token

    def _body(self) -> tuple[Token | None, list[Node]]:
        """Nodes up to `end`, `else` or a `define` (returned, with the tokens before it consumed), or to the text's
        end."""
        nodes: list[Node] = []
        while True:
            token = self._peek()
            if token.kind == "end":
                return None, nodes
            if token.kind == "text":
                self._take()
                nodes.append(Text(token.at, token.text))
                continue
            word = self._peek(1)
            if word.kind == "keyword" and word.text == "define":
                return word, nodes
            self._take()
            if word.kind == "keyword" and word.text in ("end", "else"):
                self._take()
                return word, nodes
            nodes.append(self._action())

    def _action(self) -> Node:
        token = self._peek()
        name = token.text if token.kind == "keyword" else ""
        if name in _BRANCHES:
            self._take()
            return self._branch(token)
        if name == "template":
            self._take()
            return self._include()
        if name == "block":
            self._take()
            return self._block()
        if name in ("break", "continue"):
            self._take()
            self._expect("right", f"{{{{{name}}}}}")
            if not self._loops:
                raise self._error(token, f"{{{{{name}}}}} outside {{{{range}}}}")
            return Break(token.at) if name == "break" else Continue(token.at)
        pipeline = self._pipeline("command", "right")
        return ActionNode(pipeline.at, pipeline)

    def _deeper(self, token: Token) -> None:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error(token, f"blocks and parentheses are nested deeper than {NESTING_MAX}")

    def _branch(self, opening: Token) -> Node:
        """`if`, `with` and `range`, from the word after the delimiter to their `end`."""
        kind = opening.text
        self._deeper(opening)
        scope = len(self._variables)
        pipeline = self._pipeline(kind, "right", is_loop=kind == "range")
        self._loops += kind == "range"
        word, body = self._body()
        self._loops -= kind == "range"
        otherwise: list[Node] = []
        if word is not None and word.text == "else":
            otherwise = self._otherwise(opening)
        elif word is None or word.text != "end":
            raise self._unended(opening, word)
        else:
            self._expect("right", "{{end}}")
        del self._variables[scope:]
        self._depth -= 1
        return _BRANCHES[kind](opening.at, pipeline, tuple(body), tuple(otherwise))

    def _otherwise(self, opening: Token) -> list[Node]:
        """What follows an `else`; an `else if` is an `if` inside it that shares its `end`."""
        chained = self._peek()
        if chained.kind == "keyword" and chained.text == opening.text and chained.text in ("if", "with"):
            self._take()
            return [self._branch(chained)]
        self._expect("right", "{{else}}")
        word, body = self._body()
        if word is None or word.text != "end":
            raise self._unended(opening, word)
        self._expect("right", "{{end}}")
        return body

    def _unended(self, opening: Token, word: Token | None) -> TemplateError:
        if word is not None:
            return self._error(word, f"unexpected {{{{{word.text}}}}} inside {{{{{opening.text}}}}}")
        return self._error(opening, f"{{{{{opening.text}}}}} has no {{{{end}}}}")

    def _name(self, where: str) -> str:
        token = self._take()
        if token.kind == "quoted":
            return self._checked(token, unquoted)
        if token.kind == "raw":
            return token.text[1:-1]
        raise self._error(token, f"unexpected {_named(token)} in {where}: a quoted name is needed")

    def _include(self) -> Node:
        at = self._peek().at
        name = self._name("template clause")
        if self._peek().kind == "right":
            self._take()
            return Include(at, name, None)
        return Include(at, name, self._pipeline("template clause", "right"))

    def _block(self) -> Node:
        opening = self._peek(-1) if self._next else self._peek()
        at = self._peek().at
        name = self._name("block clause")
        pipeline = self._pipeline("block clause", "right")
        self._defined(name, opening)
        return Include(at, name, pipeline)

    def _define(self) -> None:
        self._take()
        opening = self._take()
        name = self._name("define clause")
        self._expect("right", "define clause")
        self._defined(name, opening)

    def _defined(self, name: str, opening: Token) -> None:
        """Read a body of its own, with variables of its own, up to its `end`."""
        self._deeper(opening)
        outer_variables, self._variables = self._variables, ["$"]
        outer_loops, self._loops = self._loops, 0
        word, body = self._body()
        if word is None or word.text != "end":
            raise self._unended(opening, word)
        self._expect("right", "{{end}}")
        self._variables, self._loops = outer_variables, outer_loops
        self._depth -= 1
        if not _is_blank(self.templates.get(name, ())) and not _is_blank(body):
            raise self._error(opening, f'multiple definition of template "{name}"')
        if name not in self.templates or not _is_blank(body):
            self.templates[name] = tuple(body)

    def _pipeline(self, where: str, closing: str, *, is_loop: bool = False) -> Pipeline:
        at = self._peek().at
        variables, is_assignment = self._declared(is_loop=is_loop)
        commands: list[CommandNode] = []
        while True:
            commands.append(self._command(where, closing))
            token = self._take()
            if token.kind == closing:
                break
            if token.kind != "|":
                raise self._error(token, f"unexpected {_named(token)} in {where}")
        for command in commands[1:]:
            if isinstance(command.words[0], Dot | Nil | LiteralNode):
                raise self._source.error(command.at, "non executable command in pipeline")
        if not is_assignment:
            self._variables += variables
        return Pipeline(at, tuple(commands), tuple(variables), is_assignment)

    def _declared(self, *, is_loop: bool) -> tuple[list[str], bool]:
        """The variables before `:=` or `=`, if any; a loop takes two."""
        names: list[Token] = []
        ahead = 0
        while self._peek(ahead).kind == "variable" and len(names) < 2:
            names.append(self._peek(ahead))
            ahead += 1
            if self._peek(ahead).kind != "," or not is_loop or len(names) == 2:
                break
            ahead += 1
        mark = self._peek(ahead)
        if not names:
            return [], False
        if mark.kind not in (":=", "="):
            if mark.kind == ",":
                raise self._error(mark, "too many declarations")
            return [], False
        for name in names:
            if mark.kind == "=" and name.text not in self._variables:
                raise self._error(name, f"undefined variable: {name.text}")
        self._next += ahead + 1
        return [name.text for name in names], mark.kind == "="

    def _command(self, where: str, closing: str) -> CommandNode:
        at = self._peek().at
        words: list[Operand] = []
        while True:
            token = self._peek()
            if token.kind in (closing, "|"):
                break
            if token.kind not in _OPERANDS or (token.kind == "keyword" and token.text != "nil"):
                raise self._error(token, f"unexpected {_named(token)} in {where}")
            if words and not token.is_spaced:
                raise self._error(token, f"unexpected {_named(token)} in {where}: a space is missing before it")
            words.append(self._operand())
        if not words:
            problem = f"missing value for {where}" if closing == "right" else "missing value for parenthesized pipeline"
            raise self._error(self._peek(), problem)
        return CommandNode(at, tuple(words))

    def _operand(self) -> Operand:
        token = self._take()
        fields: list[str] = []
        if token.kind == "field":
            operand: Operand = Dot(token.at)
            fields.append(token.text[1:])
        else:
            operand = self._term(token)
        while self._peek().kind == "field" and not self._peek().is_spaced:
            follower = self._take()
            if isinstance(operand, Dot | Nil | LiteralNode) and not fields:
                raise self._error(follower, f"unexpected {_named(follower)} after {_named(token)}")
            fields.append(follower.text[1:])
        return Chain(token.at, operand, tuple(fields)) if fields else operand

    def _term(self, token: Token) -> Operand:
        match token.kind:
            case "dot":
                return Dot(token.at)
            case "keyword":
                return Nil(token.at)
            case "variable":
                if token.text not in self._variables:
                    raise self._error(token, f"undefined variable: {token.text}")
                return VariableNode(token.at, token.text)
            case "word":
                return self._word(token)
            case "(":
                self._deeper(token)
                pipeline = self._pipeline("parenthesized pipeline", ")")
                self._depth -= 1
                return Nested(token.at, pipeline)
            case "number":
                return LiteralNode(token.at, self._checked(token, number))
            case "character":
                return LiteralNode(token.at, self._checked(token, character))
            case "raw":
                return LiteralNode(token.at, token.text[1:-1])
            case _:
                return LiteralNode(token.at, self._checked(token, unquoted))

    def _word(self, token: Token) -> Operand:
        if token.text in ("true", "false"):
            return LiteralNode(token.at, token.text == "true")
        if self._functions is not None and token.text not in self._functions:
            raise self._error(token, f'function "{token.text}" not defined')
        return Called(token.at, token.text)

    def _checked(self, token: Token, read: Callable[[str], V]) -> V:
        try:
            return read(token.text)
        except EvaluationFailure as failure:
            raise self._error(token, str(failure)) from None


def _named(token: Token) -> str:
    return token.text if token.kind == "end" else f'"{token.text[:40]}"'


def _is_blank(body: Body | list[Node]) -> bool:
    return all(isinstance(node, Text) and not node.text.strip() for node in body)
