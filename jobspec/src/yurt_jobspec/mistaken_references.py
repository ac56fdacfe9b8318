"""Texts that were probably meant as a variable: `"${image}"` and `"var.image"` where the file declares `image`.

Both are valid: the first is left to the node, the second is plain text. So these are warnings, looked for in the text
of a file that declares variables or locals, and in no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from .diagnostics import OffsetDiagnostic

_BARE = re.compile(r"(?<!\$)\$\{[ \t]*([A-Za-z_][\w-]*)[ \t]*\}")
_QUOTED = re.compile(r'"(var|local)\.([A-Za-z_][\w-]*)"')


def mistaken_references(text: str, scopes: Mapping[str, Mapping[str, object]]) -> Iterator[OffsetDiagnostic]:
    """The warnings; `scopes` has the names of `var` and of `local`."""
    if not any(scopes.values()):
        return
    for match in _BARE.finditer(text):
        scope = next((scope for scope, names in scopes.items() if match[1] in names), None)
        if scope is not None and not _is_comment(text, match.start()) and not _is_bound(text, match[1]):
            detail = f"The text {match[0]} is left to the node: it is not the value of {scope}.{match[1]}."
            hint = f"Write ${{{scope}.{match[1]}}} if that is meant."
            yield OffsetDiagnostic("Reference without its scope", detail, match.start(), match.end(), hint)
    for match in _QUOTED.finditer(text):
        if match[2] in scopes.get(match[1], ()) and not _is_comment(text, match.start()):
            detail = f"This is the text {match[1]}.{match[2]}, not the value of the variable."
            hint = f"Write {match[1]}.{match[2]} without quotes."
            yield OffsetDiagnostic("Reference between quotes", detail, match.start(), match.end(), hint)


def _is_bound(text: str, name: str) -> bool:
    """Whether a `for` expression or a dynamic block may give the bare name a value."""
    return re.search(rf"\b(?:for|iterator|dynamic)\b[^\n]*\b{re.escape(name)}\b", text) is not None


def _is_comment(text: str, offset: int) -> bool:
    line = text[text.rfind("\n", 0, offset) + 1 : offset].lstrip()
    return line.startswith(("#", "//"))
