"""Yurt publishes metrics under Nomad's names, or a table says why it does not (`docs.generator.metric_notes`)."""

from __future__ import annotations

from pathlib import Path

from docs.generator.metric_notes import EXCEPTIONS
from docs.generator.metrics import all_names, is_excepted

NAMES = [
    f"{prefix}.{name}"
    for prefix, *names in map(str.split, (Path(__file__).parent / "metrics.txt").read_text().splitlines())
    for name in names
]


def test_every_name_of_nomad_is_published_or_excepted() -> None:
    published = all_names()
    assert [name for name in NAMES if name not in published and not is_excepted(name)] == []


def test_no_exception_is_out_of_date() -> None:
    published = all_names()
    assert [name for name in EXCEPTIONS if name in published] == []
    heads = [name.removesuffix("*") for name in EXCEPTIONS]
    assert [head for head in heads if not any(name.startswith(head) for name in NAMES)] == []
