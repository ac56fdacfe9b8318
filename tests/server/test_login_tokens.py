"""Signatures of login tokens: keys of issuers, algorithms, and what attackers try with headers."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from yurt.sdk.errors import Invalid, PermissionDenied
from yurt.server.keys.login_keys import JWKS_BYTES_MAX, KEYS_MAX, PEM_MAX, KeySet, keys_of_jwks, keys_of_pem
from yurt.server.keys.login_tokens import TOKEN_MAX, token_header, verified_claims, verified_payload

CLAIMS = {"iss": "https://id.example", "sub": "alice"}
HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
JWK_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


def shortened(value: object) -> str:
    """The name of a test with a large input."""
    return repr(value)[:32]


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def b64_number(value: int, size: int = 0) -> str:
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


@cache
def rsa_key(number: int = 0) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key(algorithm: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(CURVES[algorithm])


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def signature(algorithm: str, body: bytes, key: Any = None) -> bytes:
    if algorithm == "EdDSA":
        return ed_key().sign(body)
    digest = HASHES[algorithm[2:]]
    if algorithm.startswith("ES"):
        size = (CURVES[algorithm].key_size + 7) // 8
        return b"".join(
            n.to_bytes(size, "big") for n in decode_dss_signature(ec_key(algorithm).sign(body, ec.ECDSA(digest)))
        )
    pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
    return bytes((key or rsa_key()).sign(body, pss if algorithm[0] == "P" else padding.PKCS1v15(), digest))


def token(algorithm: str = "RS256", *, claims: object = CLAIMS, key: Any = None, **header: object) -> str:
    parts = ({"alg": algorithm, "typ": "JWT", **header}, claims)
    body = ".".join(b64(msgspec.json.encode(part)) for part in parts)
    return f"{body}.{b64(signature(algorithm, body.encode(), key))}"


def private_key(algorithm: str) -> Any:
    return ed_key() if algorithm == "EdDSA" else ec_key(algorithm) if algorithm in CURVES else rsa_key()


def pem(key: Any) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()  # type: ignore[no-any-return]


def jwk(algorithm: str = "RS256", key: Any = None, **changes: object) -> dict[str, object]:
    public = (key or private_key(algorithm)).public_key()
    if algorithm == "EdDSA":
        made = {"kty": "OKP", "crv": "Ed25519", "x": b64(public.public_bytes(Encoding.Raw, PublicFormat.Raw))}
    elif algorithm in CURVES:
        numbers, size = public.public_numbers(), (public.curve.key_size + 7) // 8
        made = {
            "kty": "EC",
            "crv": JWK_CURVES[algorithm],
            "x": b64_number(numbers.x, size),
            "y": b64_number(numbers.y, size),
        }
    else:
        numbers = public.public_numbers()
        made = {"kty": "RSA", "n": b64_number(numbers.n), "e": b64_number(numbers.e)}
    return {name: value for name, value in {**made, **changes}.items() if value is not None}


def key_set(*keys: dict[str, object]) -> KeySet:
    return keys_of_jwks(msgspec.json.encode({"keys": keys}))


def problem(shown: str, keys: KeySet, algorithms: tuple[str, ...] = ()) -> str:
    with pytest.raises(PermissionDenied) as refused:
        verified_claims(shown, keys, algorithms)
    assert refused.value.status == 401
    return str(refused.value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_checked_with_keys_of_both_kinds(algorithm: str) -> None:
    shown = token(algorithm, kid="k")
    for keys in (key_set(jwk(algorithm, kid="k", use="sig")), keys_of_pem([pem(private_key(algorithm))])):
        assert verified_claims(shown, keys, (algorithm,)) == CLAIMS
        head, body, signed = shown.split(".")
        assert "not by a key" in problem(f"{head}.{b64(b'{}')}.{signed}", keys, (algorithm,))
        assert "not by a key" in problem(f"{head}.{body}.{b64(b'x' * 64)}", keys, (algorithm,))
        assert "not by a key" in problem(f"{head}.{body}.", keys, (algorithm,))


RFC_7515_ES256 = (
    "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
    ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
)
RFC_7515_KEY = {
    "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
}  # fmt: skip
RFC_8037_EDDSA = (
    "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
    ".hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
)
RFC_8037_KEY = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}


def test_the_examples_of_the_specifications_are_accepted() -> None:
    claims = verified_claims(RFC_7515_ES256, key_set(RFC_7515_KEY), ("ES256",))
    assert claims == {"iss": "joe", "exp": 1300819380, "http://example.com/is_root": True}
    assert verified_payload(RFC_8037_EDDSA, key_set(RFC_8037_KEY), ("EdDSA",)) == b"Example of Ed25519 signing"


def unsigned(algorithm: str, secret: bytes = b"") -> str:
    body = ".".join(b64(msgspec.json.encode(part)) for part in ({"alg": algorithm}, CLAIMS))
    mac = hmac.new(secret, body.encode(), hashlib.sha256).digest() if secret else b""
    return f"{body}.{b64(mac)}"


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "HS256", "RS256 "])
@pytest.mark.parametrize("listed", [(), ("RS256",), ("none", "None", "HS256", "RS256")])
def test_no_signature_and_hmac_with_a_public_key_are_refused(algorithm: str, listed: tuple[str, ...]) -> None:
    public = pem(rsa_key())
    for secret in (b"", public.encode(), public.strip().encode()):
        assert "signing algorithm" in problem(unsigned(algorithm, secret), keys_of_pem([public]), listed)


def test_the_list_of_the_method_decides_and_is_rs256_by_default() -> None:
    keys = keys_of_pem([pem(rsa_key())])
    assert verified_claims(token("RS256"), keys) == CLAIMS
    assert "'PS256' is not one of RS256" in problem(token("PS256"), keys)
    assert "'RS256' is not one of PS256, ES256" in problem(token("RS256"), keys, ("PS256", "ES256"))


def test_a_key_checks_only_what_its_type_allows() -> None:
    keys = key_set(jwk("ES256"), jwk("EdDSA"))
    assert "no key of the issuer" in problem(token("RS256"), keys, ALGORITHMS)
    assert "no key of the issuer" in problem(token("ES384"), keys, ALGORITHMS)
    assert "no key of the issuer" in problem(token("RS256"), key_set(jwk(alg="PS256")), ALGORITHMS)


@pytest.mark.parametrize(
    ("key_id", "ids", "is_accepted"),
    [
        ("a", ("a", "b"), True), ("b", ("a", "b"), False), ("c", ("a", "b"), False), (None, ("a", "b"), True),
        ("a", (None, "b"), True), ("a", ("b", None), False), ("", ("a", "b"), False), ("../a", ("a", "b"), False),
        ("A", ("a", "b"), False), (None, (None, None), True),
    ],
)  # fmt: skip
def test_a_key_id_chooses_among_the_keys(key_id: str | None, ids: tuple[str | None, ...], is_accepted: bool) -> None:
    keys = key_set(jwk(kid=ids[0]), jwk(key=rsa_key(1), kid=ids[1]))
    shown = token(kid=key_id) if key_id is not None else token()
    if is_accepted:
        assert verified_claims(shown, keys) == CLAIMS
    else:
        assert problem(shown, keys)


@pytest.mark.parametrize(
    "header", [{"jwk": {"kty": "RSA"}}, {"jku": "https://evil.example/keys"}, {"x5c": ["x"]}, {"x5u": "https://evil"}]
)
def test_keys_that_a_token_brings_along_are_not_used(header: dict[str, object]) -> None:
    if "jwk" in header:
        header = {"jwk": jwk(key=rsa_key(1))}
    assert "not by a key of the issuer" in problem(token(key=rsa_key(1), **header), keys_of_pem([pem(rsa_key())]))


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ({"crit": ["b64"], "b64": False}, "critical extensions"),
        ({"crit": []}, "critical extensions"), ({"crit": None}, "critical"),
        ({"kid": 5}, "its header cannot be read"), ({"kid": ["a"]}, "its header cannot be read"),
        ({"kid": "x" * 1025}, "its key id is longer"), ({"alg": None}, "its header cannot be read"),
        ({"alg": ["RS256"]}, "its header cannot be read"),
    ],
)  # fmt: skip
def test_a_header_that_means_something_else_is_refused(header: dict[str, object], text: str) -> None:
    assert text in problem(token(**header), keys_of_pem([pem(rsa_key())]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("", "three parts"), ("a.b", "three parts"), ("a.b.c.d", "three parts"), ("a.b.c.d.e", "three parts"),
        ("..", "its header cannot be read"), ("!.b.c", "not base64url"), ("\ud800.b.c", "not base64url"),
        ("x" * (TOKEN_MAX + 1), "longer than"), (b64(b"[" * 20_000) + ".b.c", "its header cannot be read"),
    ],
    ids=shortened,
)  # fmt: skip
def test_what_is_no_token_is_refused(shown: str, text: str) -> None:
    assert text in problem(shown, keys_of_pem([pem(rsa_key())]))


@pytest.mark.parametrize("added", ["=", "\n", " ", "!", "+", "\ud800"])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_characters_outside_of_base64url_are_refused(added: str, part: int) -> None:
    parts = token().split(".")
    parts[part] += added
    assert "base64url" in problem(".".join(parts), keys_of_pem([pem(rsa_key())]))


@pytest.mark.parametrize("claims", [[], "text", None, 5])
def test_claims_are_an_object(claims: object) -> None:
    assert "its claims are not a JSON object" in problem(token(claims=claims), keys_of_pem([pem(rsa_key())]))


@given(data=st.binary(max_size=60), at=st.integers(0, 2))
def test_any_other_part_is_refused(data: bytes, at: int) -> None:
    parts = token("EdDSA").split(".")
    if parts[at] == b64(data):
        return
    parts[at] = b64(data)
    assert problem(".".join(parts), keys_of_pem([pem(ed_key())]), ("EdDSA",))


def test_the_header_can_be_read_before_the_keys_are_fetched() -> None:
    header = token_header(token(kid="new"))
    assert (header.alg, header.kid) == ("RS256", "new")


# Keys.


def test_a_certificate_has_the_key_of_an_issuer() -> None:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuer")])
    made = x509.CertificateBuilder(
        issuer_name=name, subject_name=name, public_key=rsa_key().public_key(), serial_number=1,
        not_valid_before=datetime(2020, 1, 1, tzinfo=UTC), not_valid_after=datetime(2050, 1, 1, tzinfo=UTC),
    ).sign(rsa_key(), hashes.SHA256())  # fmt: skip
    assert verified_claims(token(), keys_of_pem([made.public_bytes(Encoding.PEM).decode()])) == CLAIMS


def private_pem() -> str:
    return rsa_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    "make",
    [
        lambda: "", lambda: "text", private_pem, lambda: pem(rsa.generate_private_key(65537, 1024)),
        lambda: pem(ec.generate_private_key(ec.SECP256K1())), lambda: pem(dsa.generate_private_key(2048)),
        lambda: "x" * (PEM_MAX + 1), lambda: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ],
)  # fmt: skip
def test_a_pem_text_without_a_usable_key_is_refused(make: Callable[[], str]) -> None:
    with pytest.raises(Invalid, match="public key 1 cannot be used"):
        keys_of_pem([pem(rsa_key()), make()])


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"kty": "oct", "k": "c2VjcmV0"}, "the type 'oct' is not supported"),
        ({"kty": ["RSA"]}, "is not supported"),
        ({}, "the type 'None' is not supported"),
        (jwk(use="enc"), "it is not for signatures"),
        (jwk(key_ops=["encrypt"]), "it is not for checking signatures"),
        (jwk(key_ops="verify"), "it is not for checking signatures"),
        (jwk(alg="HS256"), "the algorithm 'HS256' does not fit it"),
        (jwk(alg="RSA-OAEP"), "the algorithm 'RSA-OAEP' does not fit it"),
        (jwk(alg="ES256"), "the algorithm 'ES256' does not fit it"),
        (jwk(kid=7), "its id is not a text"),
        (jwk(n=None), "its n is missing"),
        (jwk(n="!"), "its n is not base64url"),
        (jwk(e=b64_number(1 << 40)), "too large"),
        (jwk(n=b64_number((1 << 16384) + 1)), "too large"),
        (jwk(e="AQAA"), "key 0"),
        (jwk("ES256", crv="secp256k1"), "the curve 'secp256k1' is not supported"),
        (jwk("ES256", crv="P-384"), "key 0"),
        (jwk("ES256", x=b64(b"\x01" * 32)), "key 0"),
        (jwk("EdDSA", crv="X25519"), "the curve 'X25519' is not supported"),
        (jwk("EdDSA", x=b64(b"short")), "key 0"),
    ],
)
def test_unusable_keys_of_a_set_are_left_out_with_the_reason(other: dict[str, object], text: str) -> None:
    keys = key_set(other, jwk())
    assert (len(keys.keys), len(keys.skipped)) == (1, 1)
    assert text in keys.skipped[0]
    with pytest.raises(Invalid, match="the key set has no usable key"):
        key_set(other)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (b"", "cannot be read"), (b"[]", "cannot be read"), (b"{}", "cannot be read"),
        (b'{"keys":5}', "cannot be read"),
        (b'{"keys":[5]}', "cannot be read"), (b'{"keys":[]}', "no usable key"), (b"\xff", "cannot be read"),
        (b'{"keys":' + b"[" * 100_000, "cannot be read"), (b" " * (JWKS_BYTES_MAX + 1), "longer than"),
        (b"x" * 10_000_000, "longer than"), (b'{"keys":[' + b",".join([b"{}"] * (KEYS_MAX + 1)) + b"]}", "more than"),
    ],
    ids=shortened,
)  # fmt: skip
def test_a_document_that_is_no_key_set_is_refused(document: bytes, text: str) -> None:
    with pytest.raises(Invalid, match=text):
        keys_of_jwks(document)


def test_the_number_of_pem_texts_is_bounded() -> None:
    with pytest.raises(Invalid, match=f"more than {KEYS_MAX} public keys"):
        keys_of_pem([""] * (KEYS_MAX + 1))
