"""A whole state as JSON text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yurt.cli.operator.hidden import shown
from yurt.sdk.errors import Invalid
from yurt.sdk.value import wire_name

if TYPE_CHECKING:
    from yurt.state import Snapshot

Keep = Callable[[Mapping[str, Any]], bool]


def lines(state: Snapshot, filters: Sequence[Keep]) -> Iterator[str]:
    """The state as JSON, one row a line; of the tables that have the fields of the filters, the rows that fit.

    Raises Invalid when no table has them.
    """
    from yurt.api.encode import encode_builtins

    unfit: Invalid | None = None
    fits = not filters
    yield f'{{\n  "Index": {state.index}'
    for table in state.tables():
        try:
            rows = [row for row in map(shown, table.values()) if all(keep(row) for keep in filters)]
        except Invalid as error:
            unfit = error
            continue
        fits = fits or bool(len(table))
        if rows:
            texts = ",\n    ".join(encode_builtins(row).decode() for row in rows)
            yield f'  ,"{wire_name(table.name)}": [\n    {texts}\n  ]'
    if not fits and unfit is not None:
        raise unfit
    yield "}"
