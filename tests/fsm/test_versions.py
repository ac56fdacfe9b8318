"""Commands of a newer version in an older one's log: what may be ignored is passed over, anything else stops it."""

from __future__ import annotations

import msgspec
import pytest
from yurt.sdk.errors import Conflict
from yurt.storage.etcd.key_layout import StoredEntry, decode_entry, digest_of
from yurt.structs.commands import KeepAlive, StoreSchema, decode_command, decode_commands, encode_command

KNOWN = StoreSchema(driver="exec", digest="1", schema={})


def newer(tag: str) -> bytes:
    """A command that only a newer version knows."""
    return msgspec.msgpack.encode({"$": tag, "Fact": 7})


def together(*commands: bytes) -> bytes:
    """One entry's commands."""
    return msgspec.msgpack.encode([msgspec.Raw(each) for each in commands])


def test_what_may_be_ignored_changes_nothing_but_the_index() -> None:
    assert decode_command(newer("CountVisits?")) == KeepAlive()
    found = decode_commands(together(encode_command(KNOWN), newer("CountVisits?"), encode_command(KNOWN)))
    assert found == (KNOWN, KeepAlive(), KNOWN)


@pytest.mark.parametrize("data", [newer("CountVisits"), newer(""), msgspec.msgpack.encode({"Fact": 7}), b"\xc1"])
def test_anything_else_that_is_not_known_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_command(data)
    with pytest.raises(msgspec.DecodeError):
        decode_commands(together(encode_command(KNOWN), data))


def test_a_known_command_that_is_broken_is_not_passed_over() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_command(msgspec.msgpack.encode({"$": "StoreSchema", "Driver": 7}))


def test_an_entry_in_etcd_keeps_its_place_with_such_a_command_in_it() -> None:
    data = together(newer("CountVisits?"), encode_command(KNOWN))
    stored = StoredEntry(1, "9.9.9", 2, digest_of(5, data), data)
    found = decode_entry(5, msgspec.msgpack.encode(stored))
    assert (found.entry.commands, found.entry.last_index) == ((KeepAlive(), KNOWN), 6)
    data = together(newer("CountVisits"), encode_command(KNOWN))
    with pytest.raises(Conflict, match=r"yurt 9\.9\.9 wrote"):
        decode_entry(5, msgspec.msgpack.encode(StoredEntry(1, "9.9.9", 2, digest_of(5, data), data)))
