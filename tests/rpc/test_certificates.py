"""Certificates of agents: what they say, who signs them, and what is refused."""

from __future__ import annotations

import datetime

import pytest
from yurt.rpc.certificates import (
    CertificatePair,
    Wish,
    check_pair,
    facts_of,
    make_authority,
    make_certificate,
    role_name,
)
from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS, UnixNano

NOW = UnixNano(int(datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC).timestamp()) * NANOSECONDS)


def authority(**changes: object) -> CertificatePair:
    return make_authority(Wish(common_name="Nomad Agent CA", days=100, **changes), NOW)  # type: ignore[arg-type]


def test_a_certificate_names_the_role_and_is_believed() -> None:
    root = authority()
    wish = Wish(
        common_name=role_name("server", "global"),
        days=10,
        names=("localhost",),
        addresses=("10.0.0.1",),
        is_server=True,
    )
    made = make_certificate(wish, root, NOW)
    check_pair(made, root.certificate)
    facts = facts_of(made.certificate)
    assert facts.names == ("server.global.nomad", "localhost", "10.0.0.1")
    assert facts.ends - facts.begins == datetime.timedelta(days=10)
    assert not facts.is_authority
    assert facts_of(root.certificate).is_authority


def test_any_authority_of_a_bundle_may_have_signed_a_certificate() -> None:
    """While an authority is replaced a bundle holds both, the old one first."""
    old, new = authority(), authority()
    made = make_certificate(Wish(common_name="client.global.nomad", days=1), new, NOW)
    check_pair(made, old.certificate + new.certificate)


def test_what_does_not_belong_together_is_refused() -> None:
    root, other = authority(), authority()
    made = make_certificate(Wish(common_name="client.global.nomad", days=1), root, NOW)
    again = make_certificate(Wish(common_name="client.global.nomad", days=1), root, NOW)
    with pytest.raises(Invalid, match="not signed by the authority"):
        check_pair(made, other.certificate)
    with pytest.raises(Invalid, match="do not belong together"):
        check_pair(CertificatePair(certificate=made.certificate, key=again.key), root.certificate)
    with pytest.raises(Invalid, match="not one of an authority"):
        make_certificate(Wish(common_name="x", days=1), made, NOW)
    with pytest.raises(Invalid, match="do not belong together"):
        make_certificate(
            Wish(common_name="x", days=1), CertificatePair(certificate=root.certificate, key=other.key), NOW
        )


@pytest.mark.parametrize(
    "nonsense", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_is_told(nonsense: bytes) -> None:
    with pytest.raises(Invalid, match="not a certificate in PEM form"):
        facts_of(nonsense)
    root = authority()
    with pytest.raises(Invalid, match="not a private key in PEM form"):
        check_pair(CertificatePair(certificate=root.certificate, key=nonsense), root.certificate)


def test_a_wrong_address_is_told() -> None:
    with pytest.raises(Invalid, match="write an address such as"):
        make_certificate(Wish(common_name="x", days=1, addresses=("10.0.0",)), authority(), NOW)
