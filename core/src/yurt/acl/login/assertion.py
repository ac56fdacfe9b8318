"""Rules about client assertions: the key by which an OIDC client authenticates, and the assertion's header."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from yurt.structs.acl import ACLAuthMethodConfig, OIDCClientAssertion, OIDCClientAssertionKey

NOMAD, CLIENT_SECRET, PRIVATE_KEY = "nomad", "client_secret", "private_key"
SECRET_BYTES_MIN: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""RFC 7518: the key of an HMAC is as long as its digest."""
KEY_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
KEY_ID_HEADER, X5T, X5T_S256 = "kid", "x5t", "x5t#S256"
_ALGORITHMS: Final = {NOMAD: ("RS256",), CLIENT_SECRET: tuple(SECRET_BYTES_MIN), PRIVATE_KEY: KEY_ALGORITHMS}
_FIXED_HEADERS: Final = frozenset({"alg", "crit", "kid", "x5t", "x5t#S256"})


def algorithm_of(assertion: OIDCClientAssertion) -> str:
    """The algorithm of a client assertion."""
    default = "HS256" if assertion.key_source == CLIENT_SECRET else "RS256"
    return assertion.key_algorithm or default


def assertion_problems(config: ACLAuthMethodConfig, assertion: OIDCClientAssertion) -> Iterable[str]:
    """Problems of a client assertion; the keys themselves are read elsewhere."""
    source, algorithm = assertion.key_source, algorithm_of(assertion)
    if source not in _ALGORITHMS:
        yield f'unsupported KeySource "{source[:64]}", expected one of {", ".join(_ALGORITHMS)}'
        return
    if algorithm not in _ALGORITHMS[source]:
        expected = ", ".join(_ALGORITHMS[source])
        yield f'unsupported KeyAlgorithm "{algorithm[:64]}" of KeySource {source}, expected one of {expected}'
    elif source == CLIENT_SECRET and len(config.oidc_client_secret.encode()) < SECRET_BYTES_MIN[algorithm]:
        yield f"{algorithm} needs an OIDCClientSecret of {SECRET_BYTES_MIN[algorithm]} bytes or more"
    for name in sorted(_FIXED_HEADERS.intersection(assertion.extra_headers)):
        yield f'ExtraHeaders must not name "{name}"'
    if source == PRIVATE_KEY:
        yield from _key_problems(assertion.private_key)
    elif assertion.private_key is not None:
        yield f"PrivateKey has no use with KeySource {source}"


def _key_problems(key: OIDCClientAssertionKey | None) -> Iterable[str]:
    if key is None:
        yield "KeySource private_key needs PrivateKey"
        return
    if bool(key.pem_key) == bool(key.pem_key_file):
        yield "PrivateKey needs either PemKey or PemKeyFile"
    if [bool(key.key_id), bool(key.pem_cert), bool(key.pem_cert_file)].count(True) != 1:
        yield "PrivateKey needs one of KeyID, PemCert and PemCertFile"
    for name, path in (("PemKeyFile", key.pem_key_file), ("PemCertFile", key.pem_cert_file)):
        if path and not path.startswith("/"):
            yield f'{name} must be an absolute path: "{path[:140]}"'
    headers = (KEY_ID_HEADER,) if key.key_id else (X5T, X5T_S256)
    if key.key_id_header and key.key_id_header not in headers:
        yield f'unsupported KeyIDHeader "{key.key_id_header[:64]}", expected {" or ".join(headers)}'
