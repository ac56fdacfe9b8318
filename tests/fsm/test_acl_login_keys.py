"""A login method is stored only while the root key exists that opens its secrets."""

from __future__ import annotations

import pytest
from yurt.structs import commands as c
from yurt.structs.acl import ACLAuthMethod
from yurt.structs.variable import KEY_INACTIVE, RootKeyMeta
from yurt.testing.replica import Replica

SEALED = ACLAuthMethod(name="sso", type="OIDC", key_id="k1", sealed_secrets=b"sealed")
STORES = {
    "written": c.UpsertACLAuthMethod(method=SEALED),
    "replicated": c.ReplicateACLAuthMethods(methods=(SEALED,)),
}


@pytest.mark.parametrize("how", STORES)
def test_a_method_whose_key_was_removed_since_it_was_sealed_is_sealed_again(replica: Replica, how: str) -> None:
    replica.apply(c.PutRootKey(key=RootKeyMeta(key_id="k1", state=KEY_INACTIVE)))
    replica.apply(c.DeleteRootKeys(key_ids=("k1",)))
    assert replica.reject(STORES[how]).kind == "stale"
    assert not len(replica.state.acl_auth_methods)


@pytest.mark.parametrize("how", STORES)
def test_a_method_holds_its_key(replica: Replica, how: str) -> None:
    replica.apply(c.PutRootKey(key=RootKeyMeta(key_id="k1", state=KEY_INACTIVE)), STORES[how])
    assert replica.reject(c.DeleteRootKeys(key_ids=("k1",))).kind == "conflict"
