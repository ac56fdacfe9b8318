"""Results per node, cached with the node columns until a node's change invalidates them.

Three kinds: `cached_answer` for answers that a change of any node invalidates; `answers_by_shape` for answers that all
nodes of one shape share, which never change; `answers_by_row` for answers about single nodes, of which only changed
rows are asked again. So a change of one node among thousands costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import eq
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from yurt.state.arrays import IntArray
from yurt.state.columns import IS_NODE, SHAPE, NodeColumns, Shape
from yurt.state.store import Snapshot
from yurt.structs.node import Node

MEMO_MAX = 4096
FEW_SHAPES = 16
"""Up to this number of shapes, each has its node looked up separately."""

Answers = npt.NDArray[Any]


class _OfShapes(msgspec.Struct, frozen=True):
    """Results by shape number, valid where `is_valid`."""

    answers: Answers
    is_valid: npt.NDArray[np.bool_]

    def has(self, shapes: IntArray) -> bool:
        """Whether the results of all these shapes are known."""
        return bool(not len(shapes) or (shapes[-1] < len(self.is_valid) and self.is_valid[shapes].all()))


def cached_answer(rows: NodeColumns, key: Hashable, compute: Callable[[], object]) -> object:
    """A result that depends only on the node columns, computed once."""
    answer = rows.memo.get(key)
    if answer is None:
        if len(rows.memo) >= MEMO_MAX:
            rows.memo.clear()
        answer = rows.memo[key] = compute()
    return answer


def answers_by_shape(
    snapshot: Snapshot,
    key: Hashable,
    ask: Callable[[list[Shape], list[Node]], Sequence[int]],
    *,
    without: int,
) -> Answers:
    """For each row the result of `ask` for its shape, evaluated on one node of the shape; `without` for an unused row.

    The type of `without` is that of all answers. A shape without a class tells too little of its node, which is asked
    again when any node has changed.
    """
    rows = snapshot.columns.nodes
    lasting, in_use = rows.lasting, rows.shapes_in_use
    cached = lasting.get(key)
    if cached is None:
        cached = _OfShapes(np.full(1, without), np.zeros(1, np.bool_))
    if not cached.has(in_use):
        cached = _extended(cached, len(rows.shapes.values))
        invalid = in_use[~cached.is_valid[in_use]]
        numbers, values = invalid.tolist(), rows.shapes.values
        nodes = _nodes_with(snapshot, numbers)
        assert len(numbers) == len(nodes), (key, len(numbers), len(nodes), "one node speaks for its shape")
        cached.answers[invalid] = ask([values[number] for number in numbers], nodes)
        cached.is_valid[invalid] = [bool(values[number].computed_class) for number in numbers]
        if len(lasting) >= MEMO_MAX:
            lasting.clear()
        lasting[key] = cached
    is_node = rows.offered[:, IS_NODE] > 0
    return np.where(is_node, cached.answers[rows.offered[:, SHAPE]], without)


def answers_by_row(
    snapshot: Snapshot, key: Hashable, ask: Callable[[list[Node]], Sequence[int]], *, without: int
) -> Answers:
    """For each row the result of `ask` for its node; `without` for an unused row, which also determines the type."""
    rows = snapshot.columns.nodes

    def compute() -> Answers:
        by_row: Answers = np.full(len(rows.offered), without)
        earlier = rows.earlier(key)
        if earlier is None:
            numbers, nodes = _all_nodes(snapshot)
        else:
            answers, changed = earlier
            # Rows keep their numbers, so earlier answers keep their positions; only changed nodes are evaluated again.
            by_row[: len(answers)] = answers[: len(by_row)]
            by_row[changed] = without
            numbers = [row for row in changed if rows.offered[row, IS_NODE]]
            nodes = _nodes_of(snapshot, numbers)
        assert len(numbers) == len(nodes), (key, len(numbers), len(nodes), "an answer goes to the row of its node")
        if numbers:
            by_row[numbers] = ask(nodes)
        by_row.flags.writeable = False
        rows.keep(key, by_row)
        return by_row

    answer = cached_answer(rows, ("by row", key), compute)
    assert isinstance(answer, np.ndarray)
    return answer


def _all_nodes(snapshot: Snapshot) -> tuple[list[int], list[Node]]:
    """The rows of all nodes, and the nodes in the same order, which may differ between processes.

    Two maps of the same keys nearly always go through them alike: then no node has to be looked up.
    """
    rows, nodes = snapshot.columns.rows, snapshot.nodes
    if len(rows) == len(nodes) and all(map(eq, rows, nodes.keys())):
        return list(rows.values()), list(nodes.values())
    numbers = np.flatnonzero(snapshot.columns.nodes.offered[:, IS_NODE]).tolist()
    return numbers, _nodes_of(snapshot, numbers)


def _nodes_of(snapshot: Snapshot, rows: list[int]) -> list[Node]:
    """The nodes of the rows."""
    ids = snapshot.columns.nodes.ids
    return snapshot.nodes.rows([ids[row] for row in rows])


def _nodes_with(snapshot: Snapshot, shapes: list[int]) -> list[Node]:
    """One node for each shape; many are looked up at once, and the result is shared."""
    rows = snapshot.columns.nodes
    if len(shapes) <= FEW_SHAPES:
        return _nodes_of(snapshot, [rows.row_of_shape[shape] for shape in shapes])
    node_of = cached_answer(
        rows,
        "shapes",
        lambda: dict(zip(rows.row_of_shape, _nodes_of(snapshot, [*rows.row_of_shape.values()]), strict=True)),
    )
    assert isinstance(node_of, dict)
    return [node_of[shape] for shape in shapes]


def _extended(cached: _OfShapes, size: int) -> _OfShapes:
    """A copy with capacity for more shapes."""
    answers, is_valid = np.zeros(size, cached.answers.dtype), np.zeros(size, np.bool_)
    answers[: len(cached.answers)], is_valid[: len(cached.is_valid)] = cached.answers, cached.is_valid
    return _OfShapes(answers, is_valid)
