"""Template functions that query the cluster or read the task's files: variables, services, files.

A question without an answer yet gives an empty value; the whole text is thrown away then and rendered again later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from yurt.client.templates.functions.arguments import text, whole
from yurt.client.templates.render_protocol import (
    FILE,
    PROVIDED,
    SERVICE,
    SERVICES,
    VARIABLE,
    VARIABLES,
    Question,
    QuestionAnswer,
)
from yurt.gotemplate import EvaluationFailure, TemplateFunction
from yurt.sdk.templates import PRODUCT_FUNCTIONS

NO_ANSWER = QuestionAnswer(exists=False)
QUESTIONS_MAX = 256


class VariableItem(str):
    """The value of one item of a variable, with its key."""

    __slots__ = ("go_fields",)
    go_fields: Mapping[str, object]


class Items(dict[str, Any]):
    """The items of a variable by key, with the variable's metadata."""

    go_fields: Mapping[str, object]


class TemplateRecord(str):
    """A value with named fields; on its own it prints as its name."""

    __slots__ = ("go_fields",)
    go_fields: Mapping[str, object]


class Tags(list[str]):
    """A service's tags."""

    @property
    def go_fields(self) -> Mapping[str, object]:
        """`.Tags.Contains "x"`."""
        return {"Contains": lambda tag: text(tag) in self}


class Asking:
    """The questions of one rendering, and the answers known so far."""

    def __init__(self, answers: Mapping[Question, QuestionAnswer], namespace: str) -> None:
        self.questions: dict[Question, None] = {}
        self.missing: dict[Question, None] = {}
        self._answers = answers
        self._namespace = namespace

    def ask(self, question: Question, *, is_needed: bool = True) -> QuestionAnswer:
        """The answer; a missing one delays the rendering."""
        self.questions[question] = None
        if len(self.questions) > QUESTIONS_MAX:
            raise EvaluationFailure(f"the template asks for more than {QUESTIONS_MAX} variables, services and files")
        answer = self._answers.get(question)
        if answer is None or (is_needed and not answer.exists and not answer.error):
            self.missing[question] = None
        if answer is not None and answer.error:
            raise EvaluationFailure(answer.error)
        return answer or NO_ANSWER

    def need(self, question: Question) -> None:
        """Hold the rendering back until the answer changes."""
        self.missing[question] = None

    def question(self, kind: str, reference: object) -> Question:
        """A path with its namespace: `path@namespace`, or the task's own."""
        path, _, where = text(reference).strip("/").partition("@")
        return Question(kind=kind, name=path, namespace=where.split(".")[0] or self._namespace)


def functions(asking: Asking) -> dict[str, TemplateFunction]:
    """The functions over these answers."""
    return {
        "nomadVar": TemplateFunction(lambda path: _variable(asking, path), 1, 1),
        "nomadVarExists": TemplateFunction(lambda path: _exists(asking, path), 1, 1),
        "nomadVarList": TemplateFunction(lambda *prefix: _variables(asking, prefix), 0, 1),
        "nomadVarListSafe": TemplateFunction(lambda *prefix: _variables(asking, prefix, is_safe=True), 0, 1),
        "nomadServices": TemplateFunction(lambda: _services(asking), 0, 0),
        "nomadService": TemplateFunction(lambda *arguments: _service(asking, arguments), 1, 3),
        "file": TemplateFunction(lambda path: _file(asking, path), 1, 1),
    }


def _variable(asking: Asking, path: object) -> Items:
    if not text(path).strip("/"):
        raise EvaluationFailure("nomadVar wants a path")
    answer = asking.ask(asking.question(VARIABLE, path))
    return _items(answer.data or {})


def _exists(asking: Asking, path: object) -> bool:
    return asking.ask(asking.question(VARIABLE, path), is_needed=False).exists


def _items(variable: Mapping[str, Any]) -> Items:
    made = Items()
    metadata = _metadata(variable)
    for key in sorted(variable.get("Items") or {}):
        item = VariableItem(variable["Items"][key])
        item.go_fields = {"Key": key, "Value": str(item), "Path": variable.get("Path", ""), "Parent": metadata}
        made[key] = item
    made.go_fields = {
        "Keys": list(made),
        "Values": list(made.values()),
        "Tuples": list(made.values()),
        "Metadata": metadata,
        "Parent": metadata,
        "Path": variable.get("Path", ""),
    }
    return made


def _metadata(variable: Mapping[str, Any]) -> TemplateRecord:
    names = ("Namespace", "Path", "CreateIndex", "ModifyIndex", "CreateTime", "ModifyTime")
    return _record(variable.get("Path", ""), {name: variable.get(name) for name in names})


def _record(shown: str, fields: Mapping[str, object]) -> TemplateRecord:
    record = TemplateRecord(shown)
    record.go_fields = fields
    return record


def _variables(asking: Asking, prefix: tuple[object, ...], *, is_safe: bool = False) -> list[TemplateRecord]:
    question = asking.question(VARIABLES, prefix[0] if prefix else "")
    found = asking.ask(question).data or ()
    if is_safe and not found:
        asking.need(question)
    return [_metadata(each) for each in found]


def _services(asking: Asking) -> list[TemplateRecord]:
    found = asking.ask(asking.question(SERVICES, "")).data or ()
    return [
        _record(each["ServiceName"], {"Name": each["ServiceName"], "Tags": Tags(each["Tags"] or ())}) for each in found
    ]


def _service(asking: Asking, arguments: tuple[object, ...]) -> list[TemplateRecord]:
    if len(arguments) == 2:
        raise EvaluationFailure("nomadService wants a name, or a number, a key and a name")
    question = asking.question(SERVICE, arguments[-1])
    found = asking.ask(question).data or ()
    if len(arguments) == 3:
        found = _chosen(found, whole(arguments[0]), text(arguments[1]))
    return [_instance(each) for each in found]


def _chosen(found: Any, count: int, key: str) -> list[Any]:
    """The same few instances for the same key, spread over keys (rendezvous hashing)."""
    from hashlib import blake2b

    def weight(each: Mapping[str, Any]) -> bytes:
        return blake2b(f"{each['ID']}{key}".encode(), digest_size=8).digest()

    return sorted(found, key=weight)[: max(count, 0)]


def _instance(each: Mapping[str, Any]) -> TemplateRecord:
    fields = {
        "ID": each["ID"], "Name": each["ServiceName"], "Node": each["NodeID"], "Datacenter": each["Datacenter"],
        "Tags": Tags(each["Tags"] or ()), "JobID": each["JobID"], "AllocID": each["AllocID"],
        "Address": each["Address"], "Port": each["Port"],
    }  # fmt: skip
    return _record(each["ServiceName"], fields)


def _file(asking: Asking, path: object) -> str:
    answer = asking.ask(Question(kind=FILE, name=text(path)))
    return text(answer.data or b"")


def products(asking: Asking, provided: Collection[str]) -> dict[str, TemplateFunction]:
    """Functions that query other products, and those provided by packages."""
    table = {name: TemplateFunction(_provided(asking, name)) for name in provided}
    for product, names in PRODUCT_FUNCTIONS.items():
        reason = f"not available: no {product} provider on this node; a plugin may be one"
        table |= {name: TemplateFunction(absent(reason)) for name in names if name not in provided}
    return table


def _provided(asking: Asking, name: str) -> Callable[..., object]:
    def call(*arguments: object) -> object:
        return asking.ask(Question(kind=PROVIDED, name=name, arguments=tuple(text(each) for each in arguments))).data

    return call


def absent(reason: str) -> Callable[..., object]:
    """A function that only raises the reason why it is missing."""

    def call(*_values: object) -> object:
        raise EvaluationFailure(reason)

    return call
