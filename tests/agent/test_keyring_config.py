"""The `keyring` blocks of the agent's configuration."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.agent.blocks.keyring import keyring_configs
from yurt.agent.config import AgentConfig, make_config
from yurt.agent.config_check import check
from yurt.agent.config_keys import ROOT
from yurt.agent.shown_config import shown_config
from yurt.sdk.errors import Invalid


def config(keyring: Any) -> AgentConfig:
    checked, problems = check({"keyring": keyring, "data_dir": "/nowhere", "server": {"enabled": True}}, ROOT)
    assert not problems
    return make_config(checked, {}, is_dev=False)


@pytest.mark.parametrize(
    ("keyring", "told"),
    [
        (
            {"awskms": {}},
            'keyring "awskms" is not available in this version; there are: aead, passphrase, pkcs11, transit.',
        ),
        ({"passphrase": {}}, 'keyring "passphrase": passphrase_file is required.'),
        (
            {"passphrase": {"passphrase_file": "secret"}},
            'keyring "passphrase": passphrase_file "secret" must be an absolute path.',
        ),
        ({"aead": {"passphrase_file": "/x"}}, 'keyring "aead": passphrase_file has no meaning here; it takes nothing.'),
        ({"transit": {"address": "https://v", "key_name": "k"}}, 'keyring "transit": give either token or token_file.'),
        (
            {"transit": {"address": "http://vault:8200", "key_name": "k", "token": "t"}},
            'keyring "transit": address "http://vault:8200" would send the token in the clear; use https.',
        ),
        (
            {"transit": {"address": "vault", "key_name": "k", "token": "t"}},
            'keyring "transit": address "vault" must be a URL such as "https://vault.example.com:8200".',
        ),
        (
            {"aead": {}, "passphrase": {"passphrase_file": "/x"}},
            "keyring: one of several blocks must have active = true (now: none).",
        ),
    ],
)
def test_a_block_that_cannot_work_is_refused(keyring: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid) as caught:
        config(keyring)
    assert told in str(caught.value).splitlines()


GOOD_TOKEN = {"lib": "/m.so", "token_label": "t", "key_label": "k", "pin_file": "/pin"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"lib": "", "pin_file": ""}, "lib is required."),
        ({"lib": "", "pin_file": ""}, "pin_file is required."),
        ({"lib": "m.so"}, 'lib "m.so" must be an absolute path.'),
        ({"token_label": ""}, "give token_label, slot or both."),
        ({"key_label": ""}, "give key_label, key_id or both."),
        ({"slot": "one"}, 'slot "one" must be a number such as "0" or "0x1a".'),
        ({"key_id": "abc"}, 'key_id "abc" must be hexadecimal digits in pairs, such as "01a0".'),
        ({"mechanism": "AES_CBC"}, 'mechanism "AES_CBC" is not available; there are: AES_GCM, RSA_PKCS_OAEP.'),
        ({"rsa_oaep_hash": "md5"}, 'rsa_oaep_hash "md5" is not available; there are: sha1, sha256.'),
        ({"rsa_oaep_hash": "sha1"}, 'rsa_oaep_hash needs mechanism = "RSA_PKCS_OAEP".'),
    ],
)
def test_a_block_for_a_token_that_cannot_work_is_refused(changed: dict[str, str], told: str) -> None:
    with pytest.raises(Invalid) as caught:
        config({"pkcs11": {**GOOD_TOKEN, **changed}})
    assert f'keyring "pkcs11": {told}' in str(caught.value).splitlines()


def test_a_block_for_a_token_keeps_its_settings() -> None:
    (made,) = keyring_configs(config({"pkcs11": {**GOOD_TOKEN, "slot": "0x1a"}}).raw["keyring"])
    assert (made.kind, dict(made.settings)) == ("pkcs11", {**GOOD_TOKEN, "slot": "0x1a"})


def test_blocks_of_one_kind_are_told_apart_by_their_names() -> None:
    older = {"name": "2025", "passphrase_file": "/a"}
    newer = {"name": "2026", "passphrase_file": "/b", "active": True}
    found = config([{"passphrase": older}, {"passphrase": newer}])
    made = keyring_configs(found.raw["keyring"])
    assert [(each.id, each.is_active, dict(each.settings)) for each in made] == [
        ("passphrase.2025", False, {"passphrase_file": "/a"}), ("passphrase.2026", True, {"passphrase_file": "/b"}),
    ]  # fmt: skip


def test_a_block_that_stands_alone_is_active() -> None:
    (made,) = keyring_configs(config({"passphrase": {"passphrase_file": "/a"}}).raw["keyring"])
    assert made.is_active


def test_the_token_is_not_shown() -> None:
    found = config({"transit": {"address": "https://v", "key_name": "k", "token": "hvs.secret"}})
    assert "hvs.secret" not in str(shown_config(found))
