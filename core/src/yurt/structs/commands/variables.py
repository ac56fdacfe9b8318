"""Commands on variables, their locks and root keys."""

from __future__ import annotations

from yurt.sdk.value import UnixNano
from yurt.structs.acl import ACLAuthMethod
from yurt.structs.commands.base import Command, EventType
from yurt.structs.variable import EncryptedVariable, RootKeyMeta


class PutVariable(Command, tag=True):
    """Store a variable; with `check_index`, only over the version of that index (0: only a new variable)."""

    event_type = EventType("VariableUpdated", publishes_deletion=True)

    variable: EncryptedVariable
    check_index: int | None = None
    lock_id: str = ""
    now: UnixNano = UnixNano(0)
    region: str = ""
    """The region whose quota limit applies; "" in entries of earlier versions."""


class DeleteVariable(Command, tag=True):
    """Delete a variable; a missing one is not an error."""

    event_type = EventType("VariableUpdated", publishes_deletion=True)

    namespace: str
    path: str
    check_index: int | None = None
    lock_id: str = ""


class LockVariable(Command, tag=True):
    """Lock a variable and store its content; with `keeps_items`, existing content is kept."""

    event_type = EventType("VariableUpdated", publishes_deletion=True)

    variable: EncryptedVariable
    keeps_items: bool = False
    now: UnixNano = UnixNano(0)
    region: str = ""
    """As in `PutVariable`."""


class ReleaseVariableLock(Command, tag=True):
    """Release a lock at its holder's request or after its lease has expired."""

    event_type = EventType("VariableUpdated", publishes_deletion=True)

    namespace: str
    path: str
    lock_id: str
    now: UnixNano = UnixNano(0)


class RekeyVariables(Command, tag=True):
    """Store variables encrypted with another root key, except those changed meanwhile."""

    variables: tuple[EncryptedVariable, ...]


class RekeyACLAuthMethods(Command, tag=True):
    """Store login methods with secrets encrypted with another root key, except those changed meanwhile."""

    methods: tuple[ACLAuthMethod, ...]


class PutRootKey(Command, tag=True):
    """Store a root key or its state; `is_full` requests re-encryption of the variables of the formerly active key."""

    key: RootKeyMeta
    is_full: bool = False


class DeleteRootKeys(Command, tag=True):
    """Delete root keys; keys in use only with `force`."""

    key_ids: tuple[str, ...]
    is_forced: bool = False


VariableCommand = (
    PutVariable
    | DeleteVariable
    | LockVariable
    | ReleaseVariableLock
    | RekeyVariables
    | RekeyACLAuthMethods
    | PutRootKey
    | DeleteRootKeys
)
