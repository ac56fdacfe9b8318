"""A parsed template, ready to be rendered any number of times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from yurt.gotemplate.evaluate import Run, never
from yurt.gotemplate.functions import BUILT_IN, SHORT_CUT, TemplateFunction
from yurt.gotemplate.lexer import tokens
from yurt.gotemplate.limits import DEFAULT_LIMITS, Limits
from yurt.gotemplate.nodes import Body
from yurt.gotemplate.parser import Parser
from yurt.gotemplate.source import TemplateText

LEFT, RIGHT = "{{", "}}"


class ParsedTemplate(NamedTuple):
    """A template's tree, what it defines, and the functions that it may call."""

    source: TemplateText
    body: Body
    defined: Mapping[str, Body]
    functions: Mapping[str, TemplateFunction]

    def render(
        self,
        data: object,
        *,
        limits: Limits = DEFAULT_LIMITS,
        is_record: Callable[[Mapping[str, object]], bool] = never,
        left_out: Mapping[str, object] = MappingProxyType({}),
    ) -> str:
        """The text for the data; raises TemplateError.

        A field that a mapping lacks is `<no value>`; of a mapping that `is_record` it is an error, as with a Go struct,
        unless `left_out` has its value: Go leaves some empty fields out of the JSON.
        """
        run = Run(self.source, self.defined, self.functions, limits=limits, is_record=is_record, left_out=left_out)
        return run.rendered(self.body, data)


def parse(
    text: str,
    *,
    name: str = "template",
    functions: Mapping[str, TemplateFunction] | None = None,
    left: str = LEFT,
    right: str = RIGHT,
) -> ParsedTemplate:
    """The template of a text; raises TemplateError. `functions` come to those that every template has."""
    source, available = TemplateText(name, text), {**BUILT_IN, **(functions or {})}
    parser = Parser(source, list(tokens(source, left=left or LEFT, right=right or RIGHT)), {*available, *SHORT_CUT})
    body = parser.whole()
    return ParsedTemplate(source, body, parser.templates, available)


def check_syntax(text: str, *, left: str = "", right: str = "") -> None:
    """Raises TemplateError for a text that parses with no functions whatever."""
    source = TemplateText("template", text)
    Parser(source, list(tokens(source, left=left or LEFT, right=right or RIGHT)), None).whole()
