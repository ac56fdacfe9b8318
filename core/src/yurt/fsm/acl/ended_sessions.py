"""Ended browser sessions: a bounded record, kept for as long as their cookies would be valid."""

from __future__ import annotations

from typing import Final

from yurt.fsm.edit import Edit
from yurt.fsm.reject import conflict, invalid
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.structs.commands import Rejected
from yurt.structs.commands.acl import EndSession

OF_TOKEN_MAX: Final = 1_000
"""The maximum number of ended sessions recorded per token, whose holder can create and end any number."""
TOO_MANY: Final = f"{OF_TOKEN_MAX:,} sessions of this token were ended lately: wait, or delete the token to end all"


def end_session(edit: Edit, command: EndSession) -> Rejected | None:
    """Record the end of a session, unless it is recorded already."""
    session = command.session
    if not session.id or not session.secret_hash:
        return invalid("a session has an id and a token")
    if edit.tx.get(Tables.ended_sessions, session.id) is not None:
        return None
    if edit.tx.count_where(Tables.ended_sessions, "token", session.secret_hash) >= OF_TOKEN_MAX:
        return conflict(TOO_MANY)
    stored = replace(session, create_index=edit.index, modify_index=edit.index)
    edit.tx.put(Tables.ended_sessions, session.id, stored)
    return None
