"""Certificates of agents: an authority, and the certificates it signs for servers, clients and the command line.

The role of an agent is a name in its certificate, `server.<region>.nomad` or `client.<region>.nomad`, as Nomad has it,
so certificates made for the one serve the other. Our keys are on the curve P-256; those of others may be RSA's.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS, UnixNano, Value

DOMAIN = "nomad"
SERVER, CLIENT, CLI = "server", "client", "cli"
ROLES = (SERVER, CLIENT, CLI)
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
EARLIER = datetime.timedelta(minutes=1)
"""Certificates begin a moment ago, for clocks that differ."""
_SUBJECT = {
    "country": NameOID.COUNTRY_NAME,
    "postal_code": NameOID.POSTAL_CODE,
    "province": NameOID.STATE_OR_PROVINCE_NAME,
    "locality": NameOID.LOCALITY_NAME,
    "street_address": NameOID.STREET_ADDRESS,
    "organization": NameOID.ORGANIZATION_NAME,
    "organizational_unit": NameOID.ORGANIZATIONAL_UNIT_NAME,
}


class CertificatePair(Value):
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


class Wish(Value):
    """The content of a certificate to make; days of validity, and the names and addresses of its owner."""

    common_name: str
    days: int
    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    is_server: bool = False
    permitted_domains: tuple[str, ...] = ()
    subject: tuple[tuple[str, str], ...] = ()


class CertificateFacts(Value):
    """The content of a certificate, for display."""

    subject: str
    issuer: str
    serial: str
    names: tuple[str, ...]
    begins: datetime.datetime
    ends: datetime.datetime
    is_authority: bool


def role_name(role: str, region: str, domain: str = DOMAIN) -> str:
    """The name in a certificate that states its owner's role."""
    return f"{role}.{region}.{domain}"


def make_authority(wish: Wish, now: UnixNano) -> CertificatePair:
    """A self-signed authority; with permitted domains it signs for no others."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(wish)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(name, name, key.public_key(), wish, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if wish.permitted_domains:
        domains = [x509.DNSName(domain) for domain in wish.permitted_domains]
        builder = builder.add_extension(x509.NameConstraints(domains, excluded_subtrees=None), critical=True)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def make_certificate(wish: Wish, authority: CertificatePair, now: UnixNano) -> CertificatePair:
    """A certificate signed by the authority; raises Invalid for an unusable authority."""
    issuer, issuer_key = _loaded(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if wish.is_server else [])]
    others = [x509.DNSName(name) for name in dict.fromkeys((wish.common_name, *wish.names))]
    builder = (
        _builder(_name(wish), issuer.subject, key.public_key(), wish, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName([*others, *_addresses(wish.addresses)]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_issued_by(issuer), critical=False)
    )
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def facts_of(pem: bytes) -> CertificateFacts:
    """Read a certificate; raises Invalid when it is malformed."""
    certificate = _certificate(pem)
    return CertificateFacts(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        serial=str(certificate.serial_number),
        names=_names(certificate),
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
        is_authority=_is_authority(certificate),
    )


def authority_of(certificate: bytes, bundle: bytes) -> CertificateFacts:
    """The authority in a bundle that signed the certificate; the first one to end where none did; raises Invalid.

    While an authority is replaced a bundle holds the old one and the new one, in any order.
    """
    found, issued = _certificates(bundle), _certificate(certificate)
    found.sort(key=lambda each: (not _has_issued(each, issued), each.not_valid_after_utc))
    return facts_of(found[0].public_bytes(serialization.Encoding.PEM))


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def check_pair(pair: CertificatePair, bundle: bytes) -> None:
    """Raises Invalid unless key and certificate match and an authority of the bundle signed the certificate."""
    certificate, key = _certificate(pair.certificate), _key(pair.key)
    if certificate.public_key() != key.public_key():
        raise Invalid("the certificate and the key do not belong together")
    if not any(_has_issued(authority, certificate) for authority in _certificates(bundle)):
        raise Invalid("the certificate is not signed by the authority of ca_file")


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, wish: Wish, now: UnixNano
) -> x509.CertificateBuilder:
    begin = datetime.datetime.fromtimestamp(now / NANOSECONDS, datetime.UTC) - EARLIER
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=wish.days))
    )


def _issued_by(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        key_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        key_id = x509.SubjectKeyIdentifier.from_public_key(issuer.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id)


def _name(wish: Wish) -> x509.Name:
    parts = [x509.NameAttribute(_SUBJECT[field], text) for field, text in wish.subject if text]
    try:
        return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, wish.common_name)])
    except ValueError as error:
        raise Invalid(f"the subject of the certificate: {error}") from None


def _addresses(texts: Sequence[str]) -> list[x509.IPAddress]:
    try:
        return [x509.IPAddress(ipaddress.ip_address(text)) for text in dict.fromkeys(texts)]
    except ValueError as error:
        raise Invalid(f"{error}; write an address such as 10.0.0.1") from None


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> CertificatePair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    return CertificatePair(certificate=certificate.public_bytes(pem), key=private)


def _loaded(authority: CertificatePair) -> tuple[x509.Certificate, PrivateKey]:
    certificate, key = _certificate(authority.certificate), _key(authority.key)
    if certificate.public_key() != key.public_key():
        raise Invalid("the authority's certificate and key do not belong together")
    if not _is_authority(certificate):
        raise Invalid("the certificate that is to sign is not one of an authority")
    return certificate, key


def _certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise Invalid("this is not a certificate in PEM form") from None


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError:
        raise Invalid("this is not a certificate in PEM form") from None


def _key(pem: bytes) -> PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise Invalid("this is not a private key in PEM form, or it needs a password") from None
    if not isinstance(key, PrivateKey):
        raise Invalid("the key is neither RSA's nor one on an elliptic curve; make one with `yurt tls cert create`")
    return key


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress)))


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
