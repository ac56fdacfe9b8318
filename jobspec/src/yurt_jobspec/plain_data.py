"""Values to plain JSON data."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from .numbers import Number
from .values import Value, entries_of, is_null, items_of

Charge = Callable[[int], None]


def number_to_plain(value: Number) -> int | float:
    """An int where the number is whole and fits into 64 bits, otherwise a float."""
    if isinstance(value, Decimal):
        return float(value) if value else 0
    return value if -(2**63) <= value < 2**64 else float(value)


def to_plain(value: Value, charge: Charge) -> Any:
    """JSON data: objects and maps as dict, sequences as list. `charge` is told how many elements are made."""
    if is_null(value):
        return None
    if type(value) in (str, bool):
        return value
    if type(value) in (int, Decimal):
        return number_to_plain(value)
    items = items_of(value)
    if items is not None:
        charge(len(items))
        return [to_plain(item, charge) for item in items]
    entries = entries_of(value)
    assert entries is not None, type(value)
    charge(len(entries))
    return {key: to_plain(item, charge) for key, item in entries.items()}


def to_driver_config(value: Value, charge: Charge, *, nested: bool = False) -> Any:
    """An argument of a free-form block. An object stands in a list of one, the way a block of that name would; nulls
    are left out.
    """
    entries = entries_of(value)
    if entries is not None:
        charge(len(entries))
        plain = {key: to_driver_config(item, charge, nested=True) for key, item in entries.items() if not is_null(item)}
        return plain if nested else [plain]
    items = items_of(value)
    if items is not None:
        charge(len(items))
        return [to_driver_config(item, charge, nested=True) for item in items]
    return to_plain(value, charge)
