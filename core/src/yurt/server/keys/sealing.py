"""Encryption of variables: ciphertext can be decrypted only with its root key, at its own path."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from yurt.sdk.value import replace
from yurt.server.keys.keyring import Keyring
from yurt.structs.variable import EncryptedVariable


def context_of(namespace: str, path: str) -> bytes:
    """The context that binds a variable's ciphertext to its path."""
    return f"variable\0{namespace}\0{path}".encode()


def sealed(keyring: Keyring, key_id: str, *, namespace: str, path: str, items: Mapping[str, str]) -> EncryptedVariable:
    """A variable in encrypted form."""
    text = msgspec.msgpack.encode(dict(items))
    data = keyring.encrypt(key_id, text, context=context_of(namespace, path))
    return EncryptedVariable(namespace=namespace, path=path, key_id=key_id, data=data)


def opened(keyring: Keyring, variable: EncryptedVariable) -> dict[str, str]:
    """The items of a variable; raises Unavailable without its key."""
    if not variable.data:
        return {}
    text = keyring.decrypt(variable.key_id, variable.data, context=context_of(variable.namespace, variable.path))
    return msgspec.msgpack.decode(text, type=dict[str, str])


def sealed_again(keyring: Keyring, variable: EncryptedVariable, key_id: str) -> EncryptedVariable:
    """The same variable encrypted with another key."""
    context = context_of(variable.namespace, variable.path)
    text = keyring.decrypt(variable.key_id, variable.data, context=context)
    return replace(variable, key_id=key_id, data=keyring.encrypt(key_id, text, context=context))
