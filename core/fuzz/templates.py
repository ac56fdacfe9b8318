"""Targets for task templates: the text parses and renders within its limits, or is refused with a place."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from yurt.gotemplate import Limits, TemplateError, check_syntax, parse

LIMITS = Limits(steps=20_000, output=100_000, depth=40)
DATA = {
    "name": "web", "count": 3, "ratio": 0.5, "on": True, "nothing": None, "list": ["a", 1, {"b": [2]}],
    "map": {"a": {"b": "c"}, "é": "<&>"},
}  # fmt: skip


def syntax(data: bytes) -> None:
    """What the server checks when a job is registered, with the delimiters that the first byte chooses."""
    left, right = (("", ""), ("[[", "]]"), ("{%", "%}"), ("<", ">"))[data[0] % 4 if data else 0]
    try:
        check_syntax(data[1:].decode("utf-8", "surrogateescape"), left=left, right=right)
    except TemplateError as error:
        assert error.problem and error.line >= 1, error


def rendering(data: bytes) -> None:
    """What a client does, with the functions of the language alone."""
    try:
        text = parse(data.decode("utf-8", "surrogateescape")).render(DATA, limits=LIMITS)
    except TemplateError as error:
        assert str(error)
        return
    assert len(text) <= LIMITS.output


TARGETS: dict[str, Callable[[bytes], None]] = {"template_syntax": syntax, "template": rendering}
TEXTS = (
    b'{{ range $i, $e := .list }}{{ if eq $i 1 }}{{ $e | printf "%5.2v|%q" }}{{ else }}-{{ end }}{{ end }}',
    b'{{ with .map.a }}{{ .b }}{{ else }}none{{ end }}{{ define "x" }}{{ . }}{{ end }}{{ template "x" .count }}',
    b"{{- /* a comment */ -}}{{ $x := 0x1F }}{{ $x = len .name }}{{ index .list 2 }}{{ slice .name 1 2 }}{{ break }}",
    b'{{ and .on (not .nothing) | html }}{{ urlquery "a b" }}{{ js `<x>` }}{{ block "y" .ratio }}{{ . }}{{ end }}',
    b"{{ range 3 }}{{ continue }}{{ end }}{{ le 1 2 3.5 }}{{ 'a' }}{{ 1e3 }}{{ call .name }}",
)
SEEDS: dict[str, Iterable[bytes]] = {"template": TEXTS, "template_syntax": tuple(b"\0" + text for text in TEXTS)}
