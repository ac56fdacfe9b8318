"""Bind names and token names with `${value.NAME}` in them.

Only variables stand between `${` and `}`: no functions, no operators. `$${` is a literal `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from yurt.sdk.errors import Invalid

TEMPLATE_MAX: Final = 1024
VALUE: Final = "value."
METHOD_TYPE, METHOD_NAME = "auth_method_type", "auth_method_name"
TOKEN_NAME_FORMAT: Final = f"${{{METHOD_TYPE}}}-${{{METHOD_NAME}}}"
"""The default name of tokens from login methods."""
_PART: Final = re.compile(r"\$\$\{|\$\{(?P<name>[^{}]*)\}|\$\{")
_VARIABLE: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_./:-]*)\s*")


def variables(template: str) -> tuple[str, ...]:
    """The variables of a template in their order; raises Invalid when it is not well-formed."""
    if len(template) > TEMPLATE_MAX:
        raise Invalid(f"longer than {TEMPLATE_MAX} characters")
    return tuple(_variable(match) for match in _PART.finditer(template) if match[0] != "$${")


def interpolated(template: str, values: Mapping[str, str]) -> str:
    """The template with its variables replaced; raises Invalid for one that has no value."""
    variables(template)

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name = _variable(match)
        if name not in values:
            raise Invalid(f"unknown variable accessed: {name}")
        return values[name]

    # One pass: what a value brings in is never read as a template.
    return _PART.sub(replacement, template)


def lower_ascii(text: str) -> str:
    """Lower-case letters for A to Z only: a Kelvin sign must not become a "k", it has to stay what no name may have."""
    return "".join(char.lower() if char.isascii() else char for char in text)


def _variable(match: re.Match[str]) -> str:
    if match["name"] is None:
        raise Invalid(f"the ${{ at character {match.start() + 1} is not closed")
    found = _VARIABLE.fullmatch(match["name"])
    if found is None:
        raise Invalid(f"{match[0][:64]!r} is not a variable: write ${{value.NAME}}")
    return found[1]
