"""Variables, their locks, and the root keys that encrypt them.

State, log and snapshots hold `EncryptedVariable` alone: items in the clear exist in the memory of a server while it
answers, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from yurt.sdk.value import OWN, Duration, UnixNano, Value, no_entries

KeyState = Literal["active", "inactive", "rekeying", "prepublished"]
KEY_ACTIVE: Final = "active"
KEY_INACTIVE: Final = "inactive"
KEY_REKEYING: Final = "rekeying"
KEY_PREPUBLISHED: Final = "prepublished"


class VariableLock(Value):
    """An exclusive lock: it expires `ttl` after its last renewal; for `lock_delay` after that, no lock is granted."""

    id: str = ""
    ttl: Duration = Duration(0)
    lock_delay: Duration = Duration(0)


class EncryptedVariable(Value):
    """A variable as stored; only the root key `key_id` decrypts `data`."""

    namespace: str = "default"
    path: str = ""
    key_id: str = ""
    data: bytes = b""
    create_index: int = 0
    modify_index: int = 0
    create_time: UnixNano = UnixNano(0)
    modify_time: UnixNano = UnixNano(0)
    lock: VariableLock | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The namespace and path."""
        return self.namespace, self.path


class LockView(Value):
    """A lock as the API shows it; only its holder sees its id."""

    id: str = ""
    ttl: str = ""
    lock_delay: str = ""


class VariableMetadata(Value):
    """A variable without its items."""

    namespace: str = "default"
    path: str = ""
    create_index: int = 0
    modify_index: int = 0
    create_time: UnixNano = UnixNano(0)
    modify_time: UnixNano = UnixNano(0)
    lock: Annotated[LockView | None, OWN] = None


class Variable(Value):
    """A decrypted variable."""

    namespace: str = "default"
    path: str = ""
    create_index: int = 0
    modify_index: int = 0
    create_time: UnixNano = UnixNano(0)
    modify_time: UnixNano = UnixNano(0)
    items: Mapping[str, str] = no_entries()
    lock: Annotated[LockView | None, OWN] = None


def without_items(variable: Variable) -> VariableMetadata:
    """The variable's metadata, for callers who may not read its items."""
    fields = VariableMetadata.__struct_fields__
    return VariableMetadata(**{name: getattr(variable, name) for name in fields})


class RootKeyMeta(Value):
    """Metadata of a root key; the key itself is stored in the servers' keystores. Times in unix ns."""

    key_id: str = ""
    algorithm: str = "aes256-gcm"
    create_time: UnixNano = UnixNano(0)
    create_index: int = 0
    modify_index: int = 0
    state: KeyState = KEY_ACTIVE
    publish_time: UnixNano = UnixNano(0)
