"""Renders one request to a text, or to the list of unanswered questions. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.client.templates.functions.cluster import Asking
from yurt.client.templates.functions.table import table
from yurt.client.templates.render_protocol import Rendered, RenderRequest
from yurt.gotemplate import Limits, TemplateError, parse

LIMITS = Limits(steps=2_000_000, output=8 * 1024 * 1024, depth=80)


def render(request: RenderRequest) -> Rendered:
    """Render a template.

    While an answer is missing, an error is not reported, because the missing answer may be its cause.
    """
    asking = Asking(dict(request.answers), request.namespace)
    try:
        template = parse(
            request.text.decode("utf-8", "surrogateescape"),
            name=request.name,
            functions=table(request, asking),
            left=request.left,
            right=request.right,
        )
    except TemplateError as error:
        return Rendered(error=str(error))
    try:
        text = template.render(None, limits=LIMITS, is_record=_always if request.is_missing_key_error else _never)
    except TemplateError as error:
        failed = Rendered(error=str(error), asked=tuple(asking.questions), missing=tuple(asking.missing))
        return failed if not asking.missing else Rendered(asked=failed.asked, missing=failed.missing)
    output = b"" if asking.missing else text.encode("utf-8", "surrogateescape")
    return Rendered(output=output, asked=tuple(asking.questions), missing=tuple(asking.missing))


def _always(_mapping: Mapping[str, object]) -> bool:
    return True


def _never(_mapping: Mapping[str, object]) -> bool:
    return False
