"""Commands that write and delete quotas.

A namespace names a quota only while that exists, a quota is deleted only while no namespace and no quota names it, and
the quotas below another are guaranteed no more than that one: all is decided here, so whichever of two concurrent
commands comes second is rejected.
"""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from yurt.fsm.edit import Edit
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.rules.problems import multi_error
from yurt.rules.validation.quota_tree import tree_problems
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.structs.commands import DeleteQuotas, Rejected, UpsertQuotas
from yurt.structs.quota import QuotaSpec


def apply_quota(edit: Edit, command: UpsertQuotas | DeleteQuotas) -> Rejected | None:
    """Apply a command on quotas."""
    match command:
        case UpsertQuotas():
            return _put(edit, command)
        case DeleteQuotas():
            return _delete(edit, command)
        case _:
            assert_never(command)


def _put(edit: Edit, command: UpsertQuotas) -> Rejected | None:
    if any(not spec.name for spec in command.quotas):
        return invalid("a quota without a name")
    rejected = None if command.is_copy else _unfit(edit, command)
    if rejected is not None:
        return rejected
    for spec in command.quotas:
        existing: QuotaSpec | None = edit.tx.get(Tables.quotas, spec.name)
        created = edit.index if existing is None else existing.create_index
        edit.tx.put(Tables.quotas, spec.name, replace(spec, create_index=created, modify_index=edit.index))
    return None


def _unfit(edit: Edit, command: UpsertQuotas) -> Rejected | None:
    """The rejection of quotas that contradict the others in their tree, else None."""
    # Entries of earlier versions may name one twice without a tree; the last of them counted, and does so again.
    specs = {row.name: row for row in edit.tx.base.quotas.values()} | {spec.name: spec for spec in command.quotas}
    if not any(_is_in_tree(spec) for spec in specs.values()):
        return None
    twice = sorted(name for name, times in Counter(spec.name for spec in command.quotas).items() if times > 1)
    if twice:
        return invalid(f'quota "{twice[0]}" is given more than once; give each quota once')
    problems = [problem for spec in command.quotas for problem in tree_problems(spec, specs)]
    return invalid(multi_error(problems)) if problems else None


def _is_in_tree(spec: QuotaSpec) -> bool:
    return bool(spec.parent) or any(limit.guaranteed is not None for limit in spec.limits)


def _delete(edit: Edit, command: DeleteQuotas) -> Rejected | None:
    for name in command.names:
        if edit.tx.get(Tables.quotas, name) is None:
            return not_found(f'quota "{name}" not found')
        users = edit.tx.count_where(Tables.namespaces, "quota", name)
        if users:
            # Their names are left out: a writer of quotas need not have the right to see every namespace.
            number = "a namespace" if users == 1 else f"{users} namespaces"
            return conflict(f'quota "{name}" is named by {number}; apply them with another quota or none first')
        below = sorted(row.name for row in edit.tx.base.quotas.values() if row.parent == name)
        if any(each not in command.names for each in below):
            return conflict(
                f'quota "{name}" is the parent of quota "{below[0]}"; give that another parent or none first'
            )
        edit.tx.delete(Tables.quotas, name)
    return None
