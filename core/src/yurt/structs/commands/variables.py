"""Commands on variables, their locks and root keys."""

from __future__ import annotations

from yurt.sdk.value import UnixNano
from yurt.structs.acl import ACLAuthMethod
from yurt.structs.commands.base import Command, EventType
from yurt.structs.variable import EncryptedVariable, RootKeyMeta


class PutVariable(Command, tag=True):
    """Store a variable; with `check_index` only over the version of that index (0: only when there is none)."""

    event_type = EventType("VariableUpdated", publishes_deletion=True)

    variable: EncryptedVariable
    check_index: int | None = None
    lock_id: str = ""
    now: UnixNano = UnixNano(0)
    region: str = ""
    """The region whose limit of a quota counts; entries of earlier versions have none."""


class DeleteVariable(Command, tag=True):
    """Delete a variable; a missing one is not an error."""

    event_type = EventType("VariableUpdated", publishes_deletion=True)

    namespace: str
    path: str
    check_index: int | None = None
    lock_id: str = ""


class LockVariable(Command, tag=True):
    """Lock a variable, with new content; `keeps_items` takes the content only for one that is not there yet."""

    event_type = EventType("VariableUpdated", publishes_deletion=True)

    variable: EncryptedVariable
    keeps_items: bool = False
    now: UnixNano = UnixNano(0)
    region: str = ""
    """As of `PutVariable`."""


class ReleaseVariableLock(Command, tag=True):
    """Release a lock, for its holder or because its lease has expired."""

    event_type = EventType("VariableUpdated", publishes_deletion=True)

    namespace: str
    path: str
    lock_id: str
    now: UnixNano = UnixNano(0)


class RekeyVariables(Command, tag=True):
    """The same variables under another root key, as far as they have not changed since."""

    variables: tuple[EncryptedVariable, ...]


class RekeyACLAuthMethods(Command, tag=True):
    """The same login methods with their secrets under another root key, as far as they have not changed since."""

    methods: tuple[ACLAuthMethod, ...]


class PutRootKey(Command, tag=True):
    """A root key or its new state; `is_full` has all variables of the one that was active encrypted again."""

    key: RootKeyMeta
    is_full: bool = False


class DeleteRootKeys(Command, tag=True):
    """Delete root keys; one in use only with `force`."""

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
