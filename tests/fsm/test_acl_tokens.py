"""Tokens in the log: what is decided when a command is applied, and what a restored snapshot never brings back."""

from __future__ import annotations

from hashlib import sha256

import pytest
from yurt.fsm import snapshot
from yurt.fsm.acl import ended_sessions, tokens
from yurt.fsm.restore import framed
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs import acl
from yurt.structs import commands as c
from yurt.testing.factories import NOW, number_id
from yurt.testing.replica import Replica

HOUR = 3_600_000_000_000


def token(number: int = 1, **changes: object) -> acl.ACLToken:
    made = acl.ACLToken(
        accessor_id=number_id(number), secret_hash=acl.hash_of_secret(f"secret-{number}"), policies=("ops",),
        create_time=NOW,
    )  # fmt: skip
    return replace(made, **changes)


MANAGEMENT = token(9, type=acl.MANAGEMENT, policies=())


def restore(replica: Replica, earlier: Snapshot) -> None:
    data = b"".join(framed(snapshot.encode(earlier)))
    replica.apply(
        c.StageRestore(restore_id="r", number=0, data=data),
        c.FinishRestore(restore_id="r", count=1, digest=sha256(data).hexdigest()),
    )


def test_the_first_management_token_is_made_once(replica: Replica) -> None:
    replica.apply(c.BootstrapACL(token=MANAGEMENT))
    index = replica.state.index
    again = token(8, type=acl.MANAGEMENT, policies=())
    assert replica.reject(c.BootstrapACL(token=again)).message == f"ACL bootstrap already done (reset index: {index})"
    assert list(replica.state.acl_tokens.keys()) == [MANAGEMENT.accessor_id]


def test_a_reset_names_the_index_of_the_last_bootstrap_and_is_used_once(replica: Replica) -> None:
    replica.apply(c.BootstrapACL(token=MANAGEMENT))
    index = replica.state.index
    again = token(8, type=acl.MANAGEMENT, policies=())
    refused = replica.reject(c.BootstrapACL(token=again, reset_index=index + 7))
    assert refused.message == f"Invalid bootstrap reset index (specified {index + 7}, reset index: {index})"
    replica.apply(c.BootstrapACL(token=again, reset_index=index))
    third = token(7, type=acl.MANAGEMENT, policies=())
    assert "reset index" in replica.reject(c.BootstrapACL(token=third, reset_index=index)).message
    assert len(replica.state.acl_tokens) == 2


def test_a_client_token_is_no_first_token(replica: Replica) -> None:
    assert replica.reject(c.BootstrapACL(token=token())).kind == "invalid"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"accessor_id": number_id(2)}, "another token has this secret"),
        ({"secret_hash": acl.hash_of_secret("other")}, "a token with this accessor id exists"),
    ],
    ids=["secret", "accessor"],
)
def test_a_token_is_created_under_new_ids_only(replica: Replica, changes: dict[str, str], text: str) -> None:
    replica.apply(c.CreateACLToken(token=token()))
    refused = replica.reject(c.CreateACLToken(token=token(**changes)))
    assert (refused.kind, refused.message) == ("conflict", text)


def test_a_token_needs_roles_that_exist(replica: Replica) -> None:
    links = (acl.ACLTokenRoleLink(id="r1", name="web"),)
    refused = replica.reject(c.CreateACLToken(token=token(roles=links)))
    assert refused.message == "cannot find role web"


def test_an_update_changes_rights_and_keeps_secret_and_times(replica: Replica) -> None:
    replica.apply(c.CreateACLToken(token=token(expiration_time=NOW + HOUR)))
    replica.apply(c.UpdateACLToken(token=acl.ACLToken(accessor_id=number_id(1), name="n", policies=("dev",))))
    stored = replica.state.acl_tokens[number_id(1)]
    assert (stored.name, stored.policies, stored.secret_hash) == ("n", ("dev",), token().secret_hash)
    assert (stored.create_time, stored.expiration_time) == (NOW, NOW + HOUR)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"is_global": True}, "cannot toggle global mode"),
        ({"expiration_time": NOW + 1}, "cannot update expiration time"),
        ({"expiration_ttl": 5}, "cannot update expiration TTL"),
        ({"accessor_id": number_id(5)}, f"cannot find token {number_id(5)}"),
    ],
)
def test_what_makes_a_token_last_is_not_changed(replica: Replica, changes: dict[str, object], text: str) -> None:
    replica.apply(c.CreateACLToken(token=token()))
    assert replica.reject(c.UpdateACLToken(token=token(**changes))).message == text


def test_of_several_tokens_all_are_deleted_or_none(replica: Replica) -> None:
    replica.apply(c.CreateACLToken(token=token(1)), c.CreateACLToken(token=token(2)))
    missing = number_id(5)
    refused = replica.reject(c.DeleteACLTokens(accessor_ids=(number_id(1), missing)))
    assert refused.message == f"Cannot delete nonexistent tokens: {missing}"
    replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(1), number_id(2))))
    assert len(replica.state.acl_tokens) == 0


def test_a_restored_snapshot_does_not_bring_a_revoked_token_back(replica: Replica) -> None:
    replica.apply(c.CreateACLToken(token=token(1)), c.CreateACLToken(token=token(2)))
    earlier = replica.state
    replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
    restore(replica, earlier)
    assert list(replica.state.acl_tokens.keys()) == [number_id(2)]
    restore(replica, earlier)
    assert list(replica.state.acl_tokens.keys()) == [number_id(2)]


def test_a_revocation_survives_the_restore_of_a_snapshot_that_does_not_know_it(replica: Replica) -> None:
    before = replica.state
    replica.apply(c.CreateACLToken(token=token(1)))
    earlier = replica.state
    replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
    restore(replica, before)
    restore(replica, earlier)
    assert len(replica.state.acl_tokens) == 0


def test_a_snapshot_brings_its_revocations_into_another_cluster(replica: Replica) -> None:
    replica.apply(c.CreateACLToken(token=token(1)))
    earlier = replica.state
    replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
    later, other = replica.state, Replica()
    restore(other, later)
    restore(other, earlier)
    assert len(other.state.acl_tokens) == 0


def test_a_token_that_is_made_again_is_no_revoked_one(replica: Replica) -> None:
    replica.apply(
        c.CreateACLToken(token=token()),
        c.DeleteACLTokens(accessor_ids=(number_id(1),)),
        c.CreateACLToken(token=token()),
    )
    restore(replica, replica.state)
    assert number_id(1) in replica.state.acl_tokens


def test_a_restore_gives_no_token_back_what_it_was_allowed_before(replica: Replica) -> None:
    replica.apply(c.CreateACLToken(token=token(1, type=acl.MANAGEMENT, policies=())))
    earlier = replica.state
    replica.apply(c.UpdateACLToken(token=token(1, type=acl.CLIENT, policies=("ops",))))
    demoted = replica.state.acl_tokens[number_id(1)]
    restore(replica, earlier)
    assert replica.state.acl_tokens[number_id(1)] == demoted


def test_a_restore_does_not_bring_a_replaced_secret_back(replica: Replica) -> None:
    replica.apply(c.CreateACLToken(token=token(1)))
    earlier = replica.state
    replica.apply(
        c.DeleteACLTokens(accessor_ids=(number_id(1),)), c.CreateACLToken(token=token(1, secret_hash="another"))
    )
    restore(replica, earlier)
    assert replica.state.acl_tokens[number_id(1)].secret_hash == "another"


def test_a_restore_does_not_make_an_old_reset_file_valid_again(replica: Replica) -> None:
    replica.apply(c.BootstrapACL(token=token(1, type=acl.MANAGEMENT, policies=())))
    earlier, index = replica.state, replica.state.acl_bootstrap[""].modify_index
    replica.apply(c.BootstrapACL(token=token(2, type=acl.MANAGEMENT, policies=()), reset_index=index))
    restore(replica, earlier)
    again = c.BootstrapACL(token=token(3, type=acl.MANAGEMENT, policies=()), reset_index=index)
    assert "Invalid bootstrap reset index" in replica.reject(again).message


def test_below_the_floor_only_tokens_that_are_there_are_restored(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "REVOCATIONS_MAX", 4)
    for number in range(1, 8):
        replica.apply(c.CreateACLToken(token=token(number)))
    earlier = replica.state
    for number in range(1, 7):
        replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(number),)))
    assert number_id(1) not in replica.state.acl_revocations
    assert len(replica.state.acl_revocations) <= 5
    restore(replica, earlier)
    assert list(replica.state.acl_tokens.keys()) == [number_id(7)]


def test_only_tokens_that_are_over_and_old_enough_are_collected(replica: Replica) -> None:
    replica.apply(
        c.CreateACLToken(token=token(1, expiration_time=NOW + 1)),
        c.CreateACLToken(token=token(2, expiration_time=NOW + HOUR)),
        c.CreateACLToken(token=token(3)),
        c.CreateACLToken(token=token(4, expiration_time=NOW + 1, create_time=NOW + HOUR)),
    )
    everyone = tuple(map(number_id, range(1, 6)))
    replica.apply(c.CollectACL(now=UnixNano(NOW + 2), created_before=UnixNano(NOW + 1), accessor_ids=everyone))
    assert sorted(replica.state.acl_tokens.keys()) == [number_id(2), number_id(3), number_id(4)]


def test_the_revocation_of_a_token_goes_when_the_token_would_be_over(replica: Replica) -> None:
    replica.apply(c.CreateACLToken(token=token(1, expiration_time=NOW + 1)), c.CreateACLToken(token=token(2)))
    both = (number_id(1), number_id(2))
    replica.apply(c.DeleteACLTokens(accessor_ids=both))
    replica.apply(c.CollectACL(now=UnixNano(NOW + 2), created_before=NOW, revoked_ids=both))
    assert list(replica.state.acl_revocations.keys()) == [number_id(2)]


def one_time(number: int, of: int = 1) -> acl.OneTimeToken:
    return acl.OneTimeToken(
        secret_hash=acl.hash_of_secret(f"once-{number}"), accessor_id=number_id(of), sealed_secret=b"s",
        expires_at=NOW + HOUR,
    )  # fmt: skip


def test_a_one_time_token_is_used_once(replica: Replica) -> None:
    replica.apply(c.CreateACLToken(token=token()), c.PutOneTimeToken(token=one_time(1), now=NOW))
    take = c.TakeOneTimeToken(secret_hash=one_time(1).secret_hash, now=NOW)
    replica.apply(take)
    assert (replica.reject(take).kind, len(replica.state.one_time_tokens)) == ("denied", 0)


def test_a_new_one_time_token_takes_the_place_of_the_last(replica: Replica) -> None:
    replica.apply(
        c.CreateACLToken(token=token()),
        c.PutOneTimeToken(token=one_time(1), now=NOW),
        c.PutOneTimeToken(token=one_time(2), now=NOW),
    )
    assert list(replica.state.one_time_tokens.keys()) == [one_time(2).secret_hash]


@pytest.mark.parametrize("end", ["expired", "revoked", "token expired"])
def test_a_one_time_token_that_is_over_gives_nothing(replica: Replica, end: str) -> None:
    replica.apply(
        c.CreateACLToken(token=token(expiration_time=NOW + HOUR // 2)), c.PutOneTimeToken(token=one_time(1), now=NOW)
    )
    if end == "revoked":
        replica.apply(c.DeleteACLTokens(accessor_ids=(number_id(1),)))
    later = {"expired": NOW + HOUR, "revoked": NOW, "token expired": NOW + HOUR // 2}[end]
    take = c.TakeOneTimeToken(secret_hash=one_time(1).secret_hash, now=UnixNano(later))
    assert replica.reject(take).kind == "denied"


def test_nobody_gets_a_one_time_token_for_a_token_that_is_gone(replica: Replica) -> None:
    assert replica.reject(c.PutOneTimeToken(token=one_time(1), now=NOW)).kind == "denied"


def test_one_time_tokens_are_collected_when_they_are_over(replica: Replica) -> None:
    replica.apply(c.CreateACLToken(token=token()), c.PutOneTimeToken(token=one_time(1), now=NOW))
    hashes = (one_time(1).secret_hash,)
    replica.apply(c.CollectACL(now=NOW, created_before=NOW, one_time_hashes=hashes))
    assert len(replica.state.one_time_tokens) == 1
    replica.apply(c.CollectACL(now=UnixNano(NOW + HOUR), created_before=NOW, one_time_hashes=hashes))
    assert len(replica.state.one_time_tokens) == 0


def end_of(session: str, *, forget_at: int = NOW + HOUR) -> c.EndSession:
    return c.EndSession(session=acl.EndedSession(id=session, secret_hash="hash", forget_at=forget_at))


def test_a_session_is_ended_once_and_forgotten_after_its_time(replica: Replica) -> None:
    replica.apply(end_of("s"), end_of("s", forget_at=NOW + 9 * HOUR))
    assert replica.state.ended_sessions["s"].forget_at == NOW + HOUR
    early = c.CollectACL(now=NOW, created_before=NOW, session_ids=("s", "gone"))
    replica.apply(early)
    assert "s" in replica.state.ended_sessions
    replica.apply(replace(early, now=UnixNano(NOW + HOUR)))
    assert "s" not in replica.state.ended_sessions


def test_ended_sessions_of_a_token_are_bounded(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_sessions, "OF_TOKEN_MAX", 2)
    replica.apply(end_of("a"), end_of("b"), end_of("a"))
    assert replica.reject(end_of("c")).kind == "conflict"


def test_a_restored_snapshot_revives_no_ended_session(replica: Replica) -> None:
    earlier = replica.state
    replica.apply(end_of("s"))
    restore(replica, earlier)
    assert "s" in replica.state.ended_sessions
