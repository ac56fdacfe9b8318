"""Checks the keys and certificates of a login method before it is stored, so that no login finds them broken."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509 import load_pem_x509_certificate

from yurt.acl.validation import raise_problems
from yurt.sdk.errors import Invalid
from yurt.server.keys.login_keys import PEM_MAX, keys_of_pem
from yurt.server.keys.login_signing import key_of_pem
from yurt.structs.acl import REDACTED, ACLAuthMethod, ACLAuthMethodConfig, OIDCClientAssertion


def check_method_keys(method: ACLAuthMethod) -> None:
    """Raises Invalid with all that is wrong."""
    if method.config is not None:
        raise_problems("auth method", [f"invalid config: {text}" for text in _problems(method.config)])


def _problems(config: ACLAuthMethodConfig) -> Iterator[str]:
    try:
        keys_of_pem(config.jwt_validation_pub_keys)
    except Invalid as error:
        yield str(error)
    for name, texts in (("DiscoveryCaPem", config.discovery_ca_pem), ("JWKSCACert", (config.jwks_ca_cert,))):
        for text in filter(None, texts):
            try:
                trust_of_pem([text])
            except Invalid as error:
                yield f"{name}: {error}"
    if config.oidc_client_assertion is not None:
        yield from _assertion_problems(config.oidc_client_assertion)


def trust_of_pem(texts: list[str]) -> ssl.SSLContext:
    """A TLS context that trusts only these authorities, or the system's if there are none; raises Invalid."""
    joined = "\n".join(texts)
    if len(joined) > PEM_MAX * len(texts):
        raise Invalid(f"longer than {PEM_MAX} characters")
    try:
        return ssl.create_default_context(cadata=joined or None)
    except (ssl.SSLError, ValueError) as error:
        raise Invalid(f"it is not a certificate in PEM: {error}") from None


def _assertion_problems(assertion: OIDCClientAssertion) -> Iterator[str]:
    key = assertion.private_key
    if key is None:
        return
    if key.pem_key and key.pem_key != REDACTED:
        try:
            key_of_pem(key.pem_key, assertion.key_algorithm)
        except Invalid as error:
            yield f"invalid OIDCClientAssertion: PemKey: {error}"
    if key.pem_cert:
        try:
            load_pem_x509_certificate(key.pem_cert.encode())
        except (ValueError, UnsupportedAlgorithm) as error:
            yield f"invalid OIDCClientAssertion: PemCert: {error}"
