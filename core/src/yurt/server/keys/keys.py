"""The root keys of one server, and the signers that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from yurt.server.keys.identities import Identities
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.root_key_gc import RootKeyCollector
from yurt.server.keys.root_keys import RootKeys

if TYPE_CHECKING:
    from yurt.server.keys.caller_rights import CallerRightsReader
    from yurt.server.keys.callers import Callers


class Keys(msgspec.Struct, frozen=True):
    """The keys, the operations on them, and the signer of workload identities."""

    keyring: Keyring
    root_keys: RootKeys
    collector: RootKeyCollector
    identities: Identities
    callers: Callers | None
    """Tells what callers show; None while access control is off."""
    caller_rights: CallerRightsReader | None
    """Tells their rights; None likewise."""
