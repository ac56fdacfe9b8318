"""Contexts that read the system's certificates late: not before their first connection, and then all of them."""

from __future__ import annotations

import ssl
import subprocess
import sys

import pytest
from yurt.agent.certificates import LateContext, read_late

ALL_CERTIFICATES = ssl.create_default_context().cert_store_stats()["x509_ca"]


def late_context() -> ssl.SSLContext:
    with read_late():
        return ssl.create_default_context()


def authorities(context: ssl.SSLContext) -> int:
    return context.cert_store_stats()["x509_ca"]


def test_the_certificates_are_read_at_the_first_connection() -> None:
    if not ALL_CERTIFICATES:
        pytest.skip("this system trusts no authority by a file")
    context = late_context()
    assert authorities(context) == 0

    context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="example.com")

    assert authorities(context) == ALL_CERTIFICATES
    assert type(context) is ssl.SSLContext


def test_a_late_context_verifies_as_a_plain_one_does() -> None:
    context = late_context()

    assert isinstance(context, LateContext)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_contexts_made_afterwards_are_plain() -> None:
    late_context()

    assert type(ssl.create_default_context()) is ssl.SSLContext
    assert authorities(ssl.create_default_context()) == ALL_CERTIFICATES


def test_an_agent_has_read_no_certificate_when_its_parts_are_imported() -> None:
    script = (
        "import ssl, gc\n"
        "from yurt.agent.run import import_parts\n"
        "import_parts()\n"
        "found = [each for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]\n"
        "import aiohttp.connector\n"
        "found += [each for each in vars(aiohttp.connector).values() if isinstance(each, ssl.SSLContext)]\n"
        "print(len(found) > 0, sum(each.cert_store_stats()['x509_ca'] for each in found))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "0"]
