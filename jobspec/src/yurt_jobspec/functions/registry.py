"""The names, parameters and modules of the functions.

The table is text: one line a function with its family and its parameters. A parameter is `name: type`; a type
followed by `?` accepts null, a last parameter that starts with `*` takes any number of arguments, and `=` marks one
that may be left out. Each family is a module that has a function of the same name (with a `_` behind names that
Python has taken), which gets the converted values as one list. The files family gets the folder that may be read as
well.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from yurt_jobspec.diagnostics import Near
from yurt_jobspec.values import Type, Value

TABLE = """
chomp            text         str: string
format           text         format: string, *args: any?
formatlist       text         format: string, *args: any?
indent           text         spaces: number, str: string
join             text         separator: string, *lists: list(string)
lower            text         str: string
regex_replace    text         str: string, pattern: string, replace: string
replace          text         str: string, substr: string, replace: string
reverse          text         str: string
split            text         separator: string, str: string
strlen           text         str: string
strrev           text         str: string
substr           text         str: string, offset: number, length: number
title            text         str: string
trim             text         str: string, cutset: string
trimprefix       text         str: string, prefix: string
trimspace        text         str: string
trimsuffix       text         str: string, suffix: string
upper            text         str: string
chunklist        collections  list: list(any), size: number
coalesce         collections  *vals: any?
coalescelist     collections  *vals: any?
compact          collections  list: list(string)
concat           collections  *seqs: any
contains         collections  list: any, value: any
distinct         collections  list: list(any)
element          collections  list: any, index: number
flatten          collections  list: any
index            collections  collection: any, key: any
keys             collections  inputMap: any
length           collections  collection: any
lookup           collections  inputMap: any, key: string, default: any
merge            collections  *maps: any?
range            collections  *params: number
setintersection  collections  first_set: set(any), *other_sets: set(any)
setproduct       collections  *sets: any
setunion         collections  first_set: set(any), *other_sets: set(any)
slice            collections  list: any, start_index: number, end_index: number
sort             collections  list: list(string)
values           collections  mapping: any
zipmap           collections  keys: list(string), values: any
abs              numeric      num: number
ceil             numeric      num: number
floor            numeric      num: number
log              numeric      num: number, base: number
max              numeric      *numbers: number
min              numeric      *numbers: number
parseint         numeric      number: any, base: number
pow              numeric      num: number, power: number
signum           numeric      num: number
base64decode     encoding     str: string
base64encode     encoding     str: string
csvdecode        encoding     str: string
jsondecode       encoding     str: string
jsonencode       encoding     val: any?
urlencode        encoding     str: string
yamldecode       encoding     src: string
yamlencode       encoding     value: any?
bcrypt           hashing      str: string, =cost: number
md5              hashing      str: string
rsadecrypt       hashing      ciphertext: string, privatekey: string
sha1             hashing      str: string
sha256           hashing      str: string
sha512           hashing      str: string
uuidv4           hashing
uuidv5           hashing      namespace: string, name: string
cidrhost         network      prefix: string, hostnum: number
cidrnetmask      network      prefix: string
cidrsubnet       network      prefix: string, newbits: number, netnum: number
cidrsubnets      network      prefix: string, *newbits: number
formatdate       time         format: string, time: string
timeadd          time         timestamp: string, duration: string
abspath          files        path: string
basename         files        path: string
dirname          files        path: string
file             files        path: string
filebase64       files        path: string
fileexists       files        path: string
fileset          files        path: string, pattern: string
pathexpand       files        path: string
"""


Arguments = list[Any]
"""The arguments of a call, converted to the types of the function's parameters."""


class FunctionError(Exception):
    """A function failed; `argument` is the index of the responsible argument, if there is a single one."""

    def __init__(self, detail: str, argument: int | None = None) -> None:
        self.detail = detail
        self.argument = argument
        super().__init__(detail)


class Parameter(NamedTuple):
    """An argument's name in messages, and the type it is converted to."""

    name: str
    type: Type
    nullable: bool = False


class FunctionSpec(NamedTuple):
    """A function with `required` up to `len(parameters)` arguments, or more if `variadic`."""

    parameters: tuple[Parameter, ...]
    variadic: Parameter | None
    required: int
    run: Callable[..., Value]
    reads_files: bool = False

    @property
    def count_text(self) -> str:
        most = len(self.parameters)
        return str(most) if self.required == most else f"{self.required} to {most}"


_LOADED: dict[str, FunctionSpec] = {}
_LINES: dict[str, list[str]] = {}


def _lines() -> dict[str, list[str]]:
    if not _LINES:
        for line in TABLE.strip().splitlines():
            words = line.split(None, 2)
            _LINES[words[0]] = words
    return _LINES


def names() -> tuple[str, ...]:
    """The names of all functions, including the three that the evaluator implements."""
    return (*_lines(), "can", "convert", "try")


def lookup(name: str) -> FunctionSpec | None:
    """The function of that name; loads its family."""
    function = _LOADED.get(name)
    if function is None and name in _lines():
        function = _LOADED[name] = _load(_lines()[name])
    return function


def _load(words: list[str]) -> FunctionSpec:
    name, family = words[0], words[1]
    module = import_module(f".{family}", __package__)
    run = getattr(module, name, None) or getattr(module, f"{name}_")
    parameters: list[Parameter] = []
    variadic = None
    required = 0
    for item in words[2].split(", ") if len(words) > 2 else ():
        parameter_name, _, spelling = item.partition(": ")
        parameter = Parameter(parameter_name.lstrip("*="), _type(spelling.rstrip("?")), spelling.endswith("?"))
        if item.startswith("*"):
            variadic = parameter
            continue
        parameters.append(parameter)
        required += not item.startswith("=")
    return FunctionSpec(tuple(parameters), variadic, required, run, family == "files")


def _type(spelling: str) -> Type:
    kind, _, inner = spelling.rstrip(")").partition("(")
    return (kind, inner) if inner else kind


def suggestion(name: str) -> str | Near:
    """A hint for an unknown function name."""
    casts = {
        "tostring": "string",
        "tonumber": "number",
        "tobool": "bool",
        "tolist": "list(any)",
        "toset": "set(any)",
        "tomap": "map(any)",
    }
    if name in casts:
        return f"Write convert(value, {casts[name]})."
    return Near(name, names())
