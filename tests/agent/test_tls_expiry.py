"""Agents publish when their certificates end, and follow a renewed file without a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from yurt.agent.tls import TlsSettings
from yurt.agent.tls_expiry import CertificateEnds, TlsFingerprint, certificate_ends, ends_over_time
from yurt.rpc.certificates import Wish, make_authority, make_certificate
from yurt.sdk.errors import Invalid
from yurt.sdk.fingerprints import node_attributes
from yurt.sdk.value import UnixNano

DAY_S = 86_400
NOW_S = 1_800_000_000


class StepEnv:
    """Runs a step instead of a pause; after the last one the pause never ends."""

    def __init__(self, *steps: Callable[[], Any]) -> None:
        self._steps = list(steps)

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        return function()

    async def sleep(self, seconds: float) -> None:
        if not self._steps:
            raise StopAsyncIteration
        self._steps.pop(0)()


def write(folder: Path, days: int) -> TlsSettings:
    now = UnixNano(NOW_S * 1_000_000_000)
    authority = make_authority(Wish(common_name="authority", days=1_000), now)
    pair = make_certificate(Wish(common_name="agent", days=days), authority, now)
    for name, content in (("ca", authority.certificate), ("cert", pair.certificate), ("key", pair.key)):
        (folder / name).write_bytes(content)
    ca, cert, key = (str(folder / name) for name in ("ca", "cert", "key"))
    return TlsSettings(rpc=True, ca_file=ca, cert_file=cert, key_file=key)


def about(seconds: int, days: int) -> bool:
    return abs(seconds - NOW_S - days * DAY_S) < DAY_S


async def followed(settings: TlsSettings, *steps: Callable[[], Any]) -> list[CertificateEnds]:
    found: list[CertificateEnds] = []
    with pytest.raises(RuntimeError):  # The last pause ends the walk.
        async for ends in ends_over_time(settings, StepEnv(*steps)):  # type: ignore[arg-type]
            found.append(ends)
    return found


def test_the_ends_are_those_of_the_files(tmp_path: Path) -> None:
    ends = certificate_ends(write(tmp_path, 20))

    assert about(ends.certificate, 20) and about(ends.authority, 1_000)


@pytest.mark.parametrize("is_old_first", [True, False])
def test_of_a_bundle_the_authority_that_signed_counts(tmp_path: Path, is_old_first: bool) -> None:
    settings = write(tmp_path, 20)
    signer, other = Path(settings.ca_file), make_authority(Wish(common_name="old", days=2), UnixNano(NOW_S * 10**9))
    both = [other.certificate, signer.read_bytes()]
    signer.write_bytes(b"".join(both if is_old_first else reversed(both)))

    assert about(certificate_ends(settings).authority, 1_000)


def test_of_a_bundle_without_the_signer_the_first_end_counts(tmp_path: Path) -> None:
    settings = write(tmp_path, 20)
    others = [make_authority(Wish(common_name="x", days=days), UnixNano(NOW_S * 10**9)) for days in (300, 100)]
    Path(settings.ca_file).write_bytes(b"".join(each.certificate for each in others))

    assert about(certificate_ends(settings).authority, 100)


async def test_a_renewed_certificate_is_published_once(tmp_path: Path) -> None:
    settings = write(tmp_path, 20)
    found = await followed(settings, lambda: None, partial(write, tmp_path, 90), lambda: None)

    assert [about(ends.certificate, days) for ends, days in zip(found, (20, 90), strict=True)] == [True, True]


async def test_a_file_that_cannot_be_used_is_logged_once_and_the_next_one_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = write(tmp_path, 20)
    with caplog.at_level(logging.WARNING):
        broken = partial((tmp_path / "cert").write_text, "half a file")
        found = await followed(settings, broken, lambda: None, partial(write, tmp_path, 90))

    assert len(found) == 2 and len(caplog.records) == 1 and "PEM" in caplog.text


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    settings = write(tmp_path, 20)
    (tmp_path / "ca").unlink()

    with pytest.raises(Invalid, match="ca cannot be read: No such file"):
        certificate_ends(settings)


async def test_the_node_has_them_as_attributes(tmp_path: Path) -> None:
    fingerprint = TlsFingerprint(write(tmp_path, 20), StepEnv())  # type: ignore[arg-type]
    attributes = node_attributes(fingerprint.name, await anext(fingerprint.fingerprint()))

    assert set(attributes) == {"unique.tls.certificate_ends", "unique.tls.authority_ends"}
    assert all(text.endswith("Z") and len(text) == 20 for text in attributes.values())
