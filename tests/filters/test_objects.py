"""Selectors into maps with quoted keys and into lists of objects, and what is nil."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.filters import compile_filter

ROW: dict[str, Any] = {
    "Attributes": {"kernel.name": "linux", 'a"b': "quoted"},
    "Groups": [
        {"Name": "web", "Tasks": [{"Driver": "docker", "Env": {"A": "1"}}]},
        {"Name": "db", "Tasks": [{"Driver": "exec", "Env": None}]},
    ],
    "Periodic": None,
    "Parameterized": {"Payload": "required"},
    "Meta": None,
}


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ('Attributes["kernel.name"] == "linux"', True),
        ("Attributes[`kernel.name`] == linux", True),
        ('Attributes["kernel.name"] != "linux"', False),
        (r'Attributes["a\"b"] == quoted', True),
        ('"/Attributes/kernel.name" == linux', True),
        ('Attributes contains "kernel.name"', True),
        ("Periodic is nil", True),
        ("Parameterized is nil", False),
        ("Parameterized is not nil and Parameterized.Payload == required", True),
        ("Meta.team is nil", True),
        ("Groups.Name == db", True),
        ("Groups.Name != db", False),
        ("Groups.Name == cache", False),
        ("Groups.Tasks.Driver == exec", True),
        ("Groups.Tasks.Driver matches `^dock`", True),
        ("Groups.Tasks.Env contains A", True),
        ("docker in Groups.Tasks.Driver", True),
        ("Groups.0.Name == web", True),
        ("Groups[1].Name == web", False),
        ("Groups.Missing is empty", True),
        ("Groups.Name is not empty", True),
    ],
)
def test_what_a_selector_finds(expression: str, holds: bool) -> None:
    assert compile_filter(expression)(ROW) is holds
