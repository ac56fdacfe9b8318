"""Secrets of login methods: nowhere in the clear but in the memory of a server that uses them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from yurt.fsm import snapshot
from yurt.sdk.errors import Conflict, Invalid
from yurt.sdk.value import replace, seconds
from yurt.server.keys.method_secrets import opened_method, opened_secrets
from yurt.structs.acl import ACLAuthMethod, ACLAuthMethodConfig, OIDCClientAssertion, OIDCClientAssertionKey
from yurt.structs.commands import RekeyACLAuthMethods
from yurt.structs.variable import KEY_INACTIVE

SECRET = "a client secret that nobody may read"
PEM = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()  # fmt: skip
ASSERTION = OIDCClientAssertion(
    key_source="private_key", private_key=OIDCClientAssertionKey(pem_key=PEM, key_id="k1"), audience=("https://id",)
)
CONFIG = ACLAuthMethodConfig(
    oidc_discovery_url="https://id.example.com", oidc_client_id="yurt", oidc_client_secret=SECRET,
    oidc_client_assertion=ASSERTION,
)  # fmt: skip
METHOD = ACLAuthMethod(
    name="sso", type="OIDC", token_locality="local", max_token_ttl=seconds(3600), config=CONFIG
)  # fmt: skip


async def put(bench: Any, method: ACLAuthMethod = METHOD) -> ACLAuthMethod:
    return (await bench.server.resources.acl_policies.put_auth_method(method))[0]  # type: ignore[no-any-return]


def stored(bench: Any) -> ACLAuthMethod:
    return bench.server.state.acl_auth_methods["sso"]  # type: ignore[no-any-return]


def secrets(bench: Any) -> tuple[str, str]:
    return opened_secrets(bench.server.keys.keyring, stored(bench))


async def test_state_and_snapshot_hold_no_secret(bench: Any) -> None:
    made = await put(bench)
    assert made == stored(bench)
    kept = b"".join(snapshot.encode(bench.server.state))
    assert SECRET.encode() not in kept and b"PRIVATE KEY" not in kept and repr(made).count("redacted") == 2
    assert secrets(bench) == (SECRET, PEM)
    assert opened_method(bench.server.keys.keyring, made).config == CONFIG


async def test_what_was_shown_may_be_sent_back_and_a_part_may_be_changed(bench: Any) -> None:
    shown = (await put(bench)).config
    assert shown is not None
    await put(bench, replace(METHOD, config=replace(shown, oidc_client_id="other")))
    assert secrets(bench) == (SECRET, PEM)
    await put(bench, replace(METHOD, config=replace(shown, oidc_client_secret="a new one")))
    assert secrets(bench) == ("a new one", PEM)
    await put(bench, replace(METHOD, config=None, max_token_ttl=seconds(7200)))
    assert secrets(bench) == ("a new one", PEM)
    await put(bench, replace(METHOD, config=replace(CONFIG, oidc_client_secret="", oidc_client_assertion=None)))
    assert secrets(bench) == ("", "") and not stored(bench).sealed_secrets


async def test_a_masked_secret_without_a_stored_one_is_refused(bench: Any) -> None:
    with pytest.raises(Invalid, match='OIDCClientSecret is "redacted", and none is stored: write it'):
        await put(bench, replace(METHOD, config=replace(CONFIG, oidc_client_secret="redacted")))


async def test_sealed_secrets_open_for_their_own_method_only(bench: Any) -> None:
    made = await put(bench)
    with pytest.raises(Conflict, match="it has been changed"):
        opened_secrets(bench.server.keys.keyring, replace(made, name="other"))


async def test_a_full_rotation_seals_them_again_and_their_key_stays_as_long(bench: Any) -> None:
    before = await put(bench)
    old = before.key_id
    await bench.server.keys.root_keys.rotate(is_full=False)
    assert await bench.server.keys.collector.collect() == 0 and old in bench.server.state.root_keys
    with pytest.raises(Conflict, match="root key in use"):
        await bench.server.keys.root_keys.remove(old, is_forced=False)
    # What the old key sealed is sealed again when the next key replaces the one that follows it.
    await put(bench, replace(METHOD, config=None))
    current = stored(bench).key_id
    made = await bench.server.keys.root_keys.rotate(is_full=True)
    await bench.until(lambda: bench.server.state.root_keys[current].state == KEY_INACTIVE)
    assert stored(bench).key_id == made.key_id and secrets(bench) == (SECRET, PEM)
    assert await bench.server.keys.collector.collect() > 0
    assert set(bench.server.state.root_keys.keys()) == {made.key_id}


async def test_sealing_again_leaves_a_method_alone_that_has_changed(bench: Any) -> None:
    made = await put(bench)
    others: Iterable[ACLAuthMethod] = (
        replace(made, modify_index=1, sealed_secrets=b"x"), replace(made, key_id="gone", sealed_secrets=b"x"),
        replace(made, name="gone", sealed_secrets=b"x"),
    )  # fmt: skip
    await bench.server.replica.propose(RekeyACLAuthMethods(methods=tuple(others)))
    assert stored(bench) == made


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (replace(CONFIG, oidc_discovery_url="http://id.example.com"), "must begin with https://"),
        (replace(CONFIG, oidc_discovery_url="ftp://id"), "is not an address"),
        (replace(CONFIG, oidc_discovery_url="https://u:p@id"), "must not hold a user"),
        (replace(CONFIG, oidc_discovery_url="https://id:port"), "is not an address"),
        (replace(CONFIG, discovery_ca_pem=("no",)), "DiscoveryCaPem: it is not a certificate in PEM"),
        (replace(CONFIG, jwks_ca_cert="no"), "JWKSCACert: it is not a certificate in PEM"),
    ],
)
async def test_addresses_and_certificates_are_checked(bench: Any, config: ACLAuthMethodConfig, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        await put(bench, replace(METHOD, config=config))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"key_source": "file"}, 'unsupported KeySource "file"'),
        ({"key_algorithm": "HS256"}, 'unsupported KeyAlgorithm "HS256" of KeySource private_key'),
        ({"key_algorithm": "ES256"}, "PemKey: ES256 needs an EC key"),
        ({"private_key": None}, "KeySource private_key needs PrivateKey"),
        ({"private_key": OIDCClientAssertionKey(pem_key="no", key_id="k")}, "PemKey: it is not a private key"),
        ({"private_key": OIDCClientAssertionKey(pem_key=PEM, pem_key_file="/k", key_id="k")}, "either PemKey or"),
        ({"private_key": OIDCClientAssertionKey(pem_key=PEM)}, "one of KeyID, PemCert and PemCertFile"),
        ({"private_key": OIDCClientAssertionKey(pem_key_file="k", key_id="k")}, "must be an absolute path"),
        ({"private_key": OIDCClientAssertionKey(pem_key=PEM, key_id="k", key_id_header="x5t")}, "KeyIDHeader"),
        ({"extra_headers": {"alg": "none"}}, 'ExtraHeaders must not name "alg"'),
        ({"key_source": "client_secret"}, "PrivateKey has no use with KeySource client_secret"),
        ({"key_source": "client_secret", "key_algorithm": "HS512", "private_key": None}, "of 64 bytes or more"),
    ],
)
async def test_client_assertions_are_checked(bench: Any, changes: dict[str, Any], why: str) -> None:
    config = replace(CONFIG, oidc_client_assertion=replace(ASSERTION, **changes))
    with pytest.raises(Invalid, match=why) as refused:
        await put(bench, replace(METHOD, config=config))
    assert "PRIVATE KEY" not in str(refused.value)
