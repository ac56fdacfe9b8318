"""The line that a plugin prints first, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.goplugin.handshake import (
    CLIENT_CERT,
    COOKIE,
    Handshake,
    HandshakeError,
    handshake_line,
    parse_handshake,
    plugin_environment,
)
from yurt.goplugin.serve import host_problem

ADDRESS = st.text(st.characters(exclude_characters="|", exclude_categories=("C", "Z")), min_size=1, max_size=60)


def test_a_line_of_a_real_plugin_is_read() -> None:
    assert parse_handshake("1|2|unix|/tmp/plugin123|grpc\n") == Handshake(network="unix", address="/tmp/plugin123")


def test_the_certificate_comes_without_padding() -> None:
    assert parse_handshake("1|2|tcp|127.0.0.1:10000|grpc|MIIB").certificate == b"0\x82\x01"
    assert parse_handshake("1|2|unix|/s|grpc|YWI").certificate == b"ab"


@given(st.sampled_from(["unix", "tcp"]), ADDRESS, st.binary(max_size=100))
def test_what_is_written_is_read_again(network: str, address: str, certificate: bytes) -> None:
    handshake = Handshake(network=network, address=address, certificate=certificate)
    assert parse_handshake(handshake_line(handshake)) == handshake


@given(st.text(max_size=200))
def test_no_text_does_worse_than_to_be_refused(text: str) -> None:
    try:
        assert isinstance(parse_handshake(text), Handshake)
    except HandshakeError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("hello", "instead of the handshake"),
        ("", "instead of the handshake"),
        ("2|2|unix|/s|grpc", 'version "2" of the handshake'),
        ("1|1|unix|/s|grpc", 'version "1" of Nomad\'s plugin protocol'),
        ("1|2|unix|/s", "netrpc"),
        ("1|2|pipe|/s|grpc", "unix socket or tcp"),
        ("1|2|unix||grpc", "unix socket or tcp"),
        ("1|2|unix|/s|grpc|!!", "certificate"),
    ],
)
def test_a_wrong_line_is_refused_with_the_reason(line: str, reason: str) -> None:
    with pytest.raises(HandshakeError, match=reason):
        parse_handshake(line)


def test_a_plugin_hears_of_cookie_ports_and_certificate() -> None:
    env = plugin_environment(socket_folder="/s", ports=(1, 2), client_certificate="PEM", base={"PATH": "/bin"})
    assert env["NOMAD_PLUGIN_MAGIC_COOKIE"] == COOKIE
    assert (env["PLUGIN_MIN_PORT"], env["PLUGIN_MAX_PORT"], env[CLIENT_CERT], env["PATH"]) == ("1", "2", "PEM", "/bin")
    assert CLIENT_CERT not in plugin_environment(socket_folder="/s", ports=(1, 2), base={CLIENT_CERT: "another's"})


def test_a_served_driver_that_nobody_called_says_what_it_is() -> None:
    assert "plugin_dir" in host_problem({})
    assert "version 1" in host_problem({"NOMAD_PLUGIN_MAGIC_COOKIE": COOKIE, "PLUGIN_PROTOCOL_VERSIONS": "1"})
    assert host_problem({"NOMAD_PLUGIN_MAGIC_COOKIE": COOKIE, "PLUGIN_PROTOCOL_VERSIONS": "1,2"}) == ""


def test_a_plugin_sees_no_variable_that_may_be_meant_for_the_agent_alone() -> None:
    base = {
        "PATH": "/bin", "LC_ALL": "C", "https_proxy": "p", "NOMAD_TOKEN": "t", "NOMAD_CLIENT_INTRO_TOKEN": "t",
        "CONSUL_HTTP_AUTH": "t", "AWS_SECRET_ACCESS_KEY": "t", "ANYTHING": "t",
    }  # fmt: skip
    given = plugin_environment(socket_folder="/s", ports=(1, 2), base=base, allowed=("AWS_*",))
    assert {name for name in base if name in given} == {"PATH", "LC_ALL", "https_proxy", "AWS_SECRET_ACCESS_KEY"}
