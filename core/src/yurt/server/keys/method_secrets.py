"""Encrypts the secrets of login methods: state, log and snapshots hold them only sealed with a root key.

In a stored method the secrets' own fields say `redacted`. The sealed text opens for the method of its name alone, so
that no other method can be given it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.server.keys.keyring import Keyring
from yurt.structs.acl import REDACTED, ACLAuthMethod, with_method_secrets, without_method_secrets


class MethodSecrets(NamedTuple):
    """The secrets of a login method; "" for a missing one."""

    client_secret: str = ""
    pem_key: str = ""


def secrets_of(method: ACLAuthMethod) -> MethodSecrets:
    """The values of the secrets' own fields."""
    config = method.config
    if config is None:
        return MethodSecrets()
    assertion = config.oidc_client_assertion
    key = None if assertion is None else assertion.private_key
    return MethodSecrets(config.oidc_client_secret, "" if key is None else key.pem_key)


def opened_secrets(keyring: Keyring, method: ACLAuthMethod) -> MethodSecrets:
    """The secrets of a stored method; raises Unavailable without its root key, Conflict when they were changed."""
    if not method.sealed_secrets:
        return MethodSecrets()
    text = keyring.decrypt(method.key_id, method.sealed_secrets, context=_context(method.name))
    return msgspec.msgpack.decode(text, type=MethodSecrets)


def sealed_method(keyring: Keyring, key_id: str, method: ACLAuthMethod) -> ACLAuthMethod:
    """A method with its secrets sealed; without a secret, unchanged."""
    secrets = secrets_of(method)
    if not any(secrets):
        return replace(method, key_id="", sealed_secrets=b"")
    data = keyring.encrypt(key_id, msgspec.msgpack.encode(secrets), context=_context(method.name))
    return replace(without_method_secrets(method), key_id=key_id, sealed_secrets=data)


def opened_method(keyring: Keyring, method: ACLAuthMethod) -> ACLAuthMethod:
    """A stored method with its secrets decrypted, for another region that encrypts them with its own key."""
    secrets = opened_secrets(keyring, method)
    return replace(with_method_secrets(method, *secrets), key_id="", sealed_secrets=b"")


def sealed_method_again(keyring: Keyring, method: ACLAuthMethod, key_id: str) -> ACLAuthMethod:
    """The method with its secrets encrypted by another root key."""
    context = _context(method.name)
    text = keyring.decrypt(method.key_id, method.sealed_secrets, context=context)
    return replace(method, key_id=key_id, sealed_secrets=keyring.encrypt(key_id, text, context=context))


def with_stored_secrets(keyring: Keyring, method: ACLAuthMethod, existing: ACLAuthMethod | None) -> ACLAuthMethod:
    """A new version with the stored secrets in place of masked ones; raises Invalid if none is stored."""
    own = secrets_of(method)
    if REDACTED not in own:
        return method
    stored = MethodSecrets() if existing is None else opened_secrets(keyring, existing)
    merged = MethodSecrets(*(old if new == REDACTED else new for new, old in zip(own, stored, strict=True)))
    for name, new, resulting in zip(("OIDCClientSecret", "PemKey"), own, merged, strict=True):
        if new and not resulting:
            raise Invalid(
                f'auth method 0 invalid: invalid config: {name} is "{REDACTED}", and none is stored: write it'
            )
    return with_method_secrets(method, *merged)


def _context(name: str) -> bytes:
    """The context that binds sealed secrets to their method."""
    return f"acl auth method\0{name}".encode()
