"""The files by which tasks find names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.client.networks import resolving
from yurt.client.networks.resolving import host_resolver, hosts_text, merged, read_resolver, resolver_text
from yurt.structs.network import DNSConfig

WORD = st.text(alphabet="abcdefghij.:-0123456789", min_size=1, max_size=8)
WORDS = st.lists(WORD, max_size=3).map(tuple)


@given(WORDS, WORDS, WORDS)
def test_what_is_written_is_read_again(servers: tuple[str, ...], searches: tuple[str, ...], options: tuple[str, ...]):
    config = DNSConfig(servers=servers, searches=searches, options=options)
    assert read_resolver(resolver_text(config)) == config


def test_comments_and_unknown_words_are_passed_over():
    text = "# nameserver 1.1.1.1\nnameserver 2.2.2.2 # mine\nsortlist x\n; x\ndomain a.example\nnameserver\n"
    assert read_resolver(text) == DNSConfig(servers=("2.2.2.2",), searches=("a.example",))


def test_each_part_comes_from_the_first_that_has_it():
    first = DNSConfig(searches=("job.example",))
    assert merged(first, DNSConfig(servers=("1.1.1.1",), searches=("host.example",))) == DNSConfig(
        servers=("1.1.1.1",), searches=("job.example",)
    )
    assert merged(None, first) == first


def test_the_name_of_an_allocation_stands_at_its_addresses():
    lines = hosts_text("shop", ("10.0.0.2", "fd00::2", "")).splitlines()
    assert lines[-2:] == ["10.0.0.2 shop", "fd00::2 shop"] and "127.0.0.1 localhost" in lines


@pytest.mark.parametrize(("is_namespaced", "server"), [(True, "9.9.9.9"), (False, "127.0.0.53")])
def test_a_resolver_on_the_hosts_loopback_is_left_out_of_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_namespaced: bool, server: str
):
    (tmp_path / "own").write_text("nameserver 127.0.0.53\nsearch host.example\n")
    (tmp_path / "behind").write_text("nameserver 9.9.9.9\nnameserver 127.0.0.1\n")
    monkeypatch.setattr(resolving, "HOST_FILE", tmp_path / "own")
    monkeypatch.setattr(resolving, "UPSTREAM_FILE", tmp_path / "behind")
    assert host_resolver(is_namespaced=is_namespaced) == DNSConfig(servers=(server,), searches=("host.example",))


def test_a_host_without_a_resolver_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resolving, "HOST_FILE", tmp_path / "absent")
    assert host_resolver(is_namespaced=True) == DNSConfig()
