"""Keys of the configuration without effect: each has a reason, and the agent tells it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.agent.blocks.without_effect import REASONS, no_effect_of, no_effects, warn_of_no_effect, with_effect
from yurt.agent.component_configs import cgroup_parent, fingerprint_retries, search_settings
from yurt.agent.config_check import check
from yurt.agent.config_keys import ACCEPTED, ROOT, ConfigBlock, Key
from yurt.agent.process.reloading import Reload, reload_of
from yurt.client.config import FingerprintRetry
from yurt.client.fingerprint.host import host_uuid
from yurt.sdk.errors import Invalid


def accepted(table: ConfigBlock = ROOT, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all keys without effect."""
    for name, entry in table.entries.items():
        if isinstance(entry, ConfigBlock):
            yield from accepted(entry, (*above, name))
        elif entry.support == ACCEPTED:
            yield (*above, name)


def document(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A configuration with one key."""
    for name in reversed(path):
        value = {name: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("path", list(accepted()), ids=".".join)
def test_a_key_without_effect_is_told_with_its_reason(path: tuple[str, ...]) -> None:
    assert no_effects(document(path, "something")) == {".".join(path): no_effect_of(path).reason}


def test_a_key_that_asks_for_what_happens_anyway_is_not_told() -> None:
    assert not no_effects({"disable_update_check": True, "tls": {"verify_server_hostname": True}})
    assert no_effects({"disable_update_check": False, "tls": {"verify_server_hostname": False}})


def test_every_reason_is_that_of_a_key() -> None:
    known = {".".join(path) for path in accepted()}
    assert set(REASONS) - known == {"consul", "vault"}, "only these are whole blocks"


def test_a_reload_tells_the_reasons_of_new_keys_once(caplog: pytest.LogCaptureFixture) -> None:
    old = {"region": "a", "rpc": {"accept_backlog": 5}}
    new = {"region": "b", "rpc": {"accept_backlog": 6}, "server": {"plan_apply_pipeline": 2}}
    warn_of_no_effect(new, known=old)
    reason = REASONS["server.plan_apply_pipeline"].reason
    assert caplog.messages == [f"configuration without effect: server.plan_apply_pipeline: {reason}"]
    assert reload_of(with_effect(old), with_effect(new)) == Reload(taken=(), waiting=("region",))


@pytest.mark.parametrize("url", ["consul.example", "javascript:alert(1)", "//x"])
def test_an_address_of_a_link_is_a_url(url: str) -> None:
    (found,) = check(document(("ui", "consul", "ui_url"), url), ROOT)[1]
    assert found.text == f'"ui.consul.ui_url" must be a URL such as "https://consul.example", not "{url}"'
    assert not check(document(("ui", "vault", "ui_url"), "https://x"), ROOT)[1]


def test_a_used_key_is_not_told() -> None:
    assert isinstance(ROOT.entries["region"], Key)
    assert not no_effects({"region": "global", "client": {"enabled": True, "meta": {"a": "b"}}})


def test_the_lesser_of_the_two_limits_of_a_search_counts() -> None:
    assert search_settings({"limit_query": 5}).matches_max == 5
    assert search_settings({"limit_query": 500, "limit_results": 7}).matches_max == 7
    assert search_settings({}).matches_max == 100


@pytest.mark.parametrize("given", ["/nomad.slice/", "nomad.slice", "a.slice/b-1"])
def test_a_cgroup_parent_is_a_path_below_the_mount_point(given: str) -> None:
    assert cgroup_parent({"cgroup_parent": given}) == given.strip("/")


@pytest.mark.parametrize("given", ["../x", "a//b", "a b", "x/..", ".", "../../x", "a/cgroup.procs"])
def test_another_cgroup_parent_is_refused(given: str) -> None:
    with pytest.raises(Invalid, match="cgroup_parent"):
        cgroup_parent({"cgroup_parent": given})


def test_the_block_of_a_clouds_fingerprint_counts_for_its_attributes() -> None:
    found = fingerprint_retries({"env_aws": {"retry_interval": "5s", "retry_attempts": 3, "exit_on_failure": True}})
    assert found == {"platform.aws": FingerprintRetry(interval_s=5.0, attempts=3, ends_agent=True)}


def test_the_id_of_a_host_is_lasting_and_does_not_reveal_its_source(tmp_path: Path) -> None:
    firmware, system = tmp_path / "product_uuid", tmp_path / "machine-id"
    system.write_text("9d1f\n")
    of_system = host_uuid((firmware, system))
    firmware.write_text("4C4C4544-0000-2010-8020-80C04F202020\n")
    of_firmware = host_uuid((firmware, system))
    assert of_system != of_firmware == host_uuid((firmware, system))
    assert "4c4c4544" not in of_firmware and len(of_firmware) == 36
    assert host_uuid((tmp_path / "none",)) == ""


@pytest.mark.parametrize(
    "placeholder",
    ["Not Settable", "00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009", "uninitialized"],
)
def test_a_placeholder_is_not_the_id_of_a_host(tmp_path: Path, placeholder: str) -> None:
    firmware, system = tmp_path / "product_uuid", tmp_path / "machine-id"
    system.write_text("9d1f\n")
    firmware.write_text(f"{placeholder}\n")
    assert host_uuid((firmware, system)) == host_uuid((system,))
    assert host_uuid((firmware,)) == ""


@pytest.mark.parametrize(
    "path",
    [
        ("client", "server_join", "retry_interval"),
        ("server", "server_join", "retry_interval"),
        ("server", "retry_interval"),
        ("client", "fingerprint", "env_aws", "retry_interval"),
        ("rpc", "dial_timeout"),
    ],
    ids=".".join,
)
def test_a_pause_of_nothing_is_refused_with_its_place(path: tuple[str, ...]) -> None:
    (found,) = check(document(path, "0s"), ROOT)[1]
    assert found.path == path and found.text == f'"{".".join(path)}" must be 100ms or more, not "0s"'
    assert not check(document(path, "100ms"), ROOT)[1]
