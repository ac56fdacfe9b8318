"""What an isolated task may ask for: nothing that the agent has not allowed."""

from __future__ import annotations

import pytest
from yurt.executor.oci.allowance import (
    CAPABILITIES,
    DEFAULT_CAPABILITIES,
    UserRules,
    capabilities,
    check_user,
    denied_names,
    namespace_mode,
    parse_ranges,
)
from yurt.executor.spec import UserIds
from yurt.sdk.errors import DriverError, Invalid

NOBODY = UserIds(uid=65534, gid=65534, groups=(65534,))


def rights(
    *, allowed: tuple[str, ...] = DEFAULT_CAPABILITIES, add: tuple[str, ...] = (), drop: tuple[str, ...] = ()
) -> set[str]:
    found = capabilities(allowed=allowed, add=add, drop=drop)
    return {plain(name) for name in found.of_root}


def plain(name: str) -> str:
    return name.removeprefix("CAP_").lower()


def test_a_user_other_than_root_has_what_was_added_alone() -> None:
    assert capabilities(allowed=DEFAULT_CAPABILITIES, add=(), drop=()).of_others == ()
    assert capabilities(allowed=DEFAULT_CAPABILITIES, add=("kill",), drop=("all",)).of_others == ("CAP_KILL",)


def test_a_task_has_the_defaults_and_no_more() -> None:
    assert rights() == set(DEFAULT_CAPABILITIES)
    assert "net_raw" not in rights(allowed=("all",))


def test_what_the_agent_does_not_allow_no_task_has_by_default() -> None:
    assert rights(allowed=("chown",)) == {"chown"}


@pytest.mark.parametrize("name", ["net_raw", "NET_RAW", "cap_net_raw", "CAP_NET_RAW"])
def test_an_allowed_capability_is_added_however_it_is_written(name: str) -> None:
    assert "net_raw" in rights(allowed=(*DEFAULT_CAPABILITIES, name), add=(name,))


@pytest.mark.parametrize("name", ["sys_admin", "all", "CAP_SYS_ADMIN"])
def test_what_is_not_allowed_is_refused_with_the_option_that_would_allow_it(name: str) -> None:
    with pytest.raises(DriverError, match=r"sys_admin.*allow_caps"):
        rights(add=(name,))


def test_all_is_every_capability_where_the_agent_allows_all() -> None:
    assert rights(allowed=("all",), add=("all",)) == CAPABILITIES


def test_dropping_all_and_adding_one_leaves_one() -> None:
    assert rights(drop=("all",), add=("chown",)) == {"chown"}


def test_a_misspelt_capability_is_named() -> None:
    with pytest.raises(DriverError, match="unknown Linux capabilities: net_raww"):
        rights(drop=("net_raww",))


def test_a_namespace_of_the_host_takes_the_agents_word() -> None:
    assert namespace_mode("", option="pid_mode", default="private") == "private"
    assert namespace_mode("host", option="pid_mode", default="private", allowed=["host"]) == "host"
    assert namespace_mode("private", option="pid_mode", default="host") == "private"
    with pytest.raises(DriverError, match=r'pid = \["host"\]'):
        namespace_mode("host", option="pid_mode", default="private")


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(DriverError, match='"private" or "host"'):
        namespace_mode("container:x", option="ipc_mode", default="private", allowed=["container:x"])


def test_root_is_denied_to_checked_drivers_unless_the_options_say_otherwise() -> None:
    assert denied_names("exec", {}) == ("root", "Administrator")
    assert denied_names("raw_exec", {}) == ()
    assert denied_names("exec", {"user.denylist": "games"}) == ("games",)
    assert denied_names("exec", {"user.checked_drivers": "qemu"}) == ()


def test_a_denied_user_has_no_other_name() -> None:
    rules = UserRules(names=("root",))
    for user in ("root", "0", "toor"):
        with pytest.raises(DriverError, match=r"denies root \(user.denylist\)"):
            check_user(rules, user, ids=UserIds(uid=0, gid=0), denied_ids={"root": 0})
    check_user(rules, "nobody", ids=NOBODY, denied_ids={"root": 0})


def test_ids_are_denied_by_ranges_groups_included() -> None:
    rules = UserRules(uids=parse_ranges("0-99", option="u"), gids=parse_ranges("27", option="g"))
    check_user(rules, "nobody", ids=NOBODY, denied_ids={})
    with pytest.raises(DriverError, match="uid 33"):
        check_user(rules, "www-data", ids=UserIds(uid=33, gid=33), denied_ids={})
    with pytest.raises(DriverError, match="gid 27"):
        check_user(rules, "ops", ids=UserIds(uid=1000, gid=1000, groups=(1000, 27)), denied_ids={})


@pytest.mark.parametrize("text", ["x", "20-10", "1-2-3", "-5"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="denied_host_uids"):
        parse_ranges(text, option="denied_host_uids")
