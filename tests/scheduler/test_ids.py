"""Ids of an attempt: UUIDs, the same ones however many are asked for at once."""

from __future__ import annotations

import uuid

from yurt.scheduler.ids import FEW, SeededIds


def test_many_ids_begin_with_those_that_few_would_be() -> None:
    many = SeededIds(7, "web").next_many("alloc", 3 * FEW + 1)

    assert many[:FEW] == SeededIds(7, "web").next_many("alloc", FEW)
    assert len(set(many)) == len(many) == 3 * FEW + 1
    assert all(str(uuid.UUID(each)) == each for each in many)
