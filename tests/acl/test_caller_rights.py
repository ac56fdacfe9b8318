"""What an agent without a server is told decides as the server would, about all that such an agent decides."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from yurt.access import ANYWHERE, Identity, NoToken, Scope, ShownWorkload, needs
from yurt.access.needs import (
    AllOf,
    AnyOf,
    Area,
    AtLevel,
    Capability,
    EachRow,
    InNamespace,
    Level,
    Need,
)
from yurt.acl import AuthenticationLevel, CompiledPolicies, Resolved, Rights, parse_policy
from yurt.acl.caller_rights import caller_rights, identity_in, rights_of
from yurt.http.route_table import ROUTES
from yurt.http.routes import BY_STATE
from yurt.sdk.value import UnixNano
from yurt.structs.acl import ACLToken
from yurt.structs.rpc import CallerRights

WHO = Identity(resolved_by="token", accessor_id="an accessor", policies=("team-secret",))
LABELS = st.text("ab-*", min_size=1, max_size=4)
CAPABILITIES = st.lists(st.sampled_from(["deny", "read-job", "read-logs", "alloc-exec"]), max_size=3)
LEVELS = st.sampled_from(["", "deny", "read", "write"])
DECIDED = (needs.namespace(Capability.READ_LOGS), needs.namespace(Capability.ALLOC_EXEC, Capability.READ_JOB),
           needs.ANY_CAPABILITY, needs.MANAGEMENT, needs.AUTHENTICATED, needs.ANONYMOUS, needs.NODE_READ,
           needs.NODE_WRITE, needs.AGENT_READ, needs.AGENT_WRITE)  # fmt: skip


def told(rights: Rights) -> Rights:
    """The rights after their way to another agent."""
    found = caller_rights(NoToken(), Resolved(rights), WHO, UnixNano(0))
    return rights_of(msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=CallerRights))


@given(
    st.dictionaries(LABELS, CAPABILITIES, max_size=4), LEVELS, LEVELS, st.text("ab-", min_size=1, max_size=5),
    st.sampled_from(list(AuthenticationLevel)),
)  # fmt: skip
def test_rights_decide_alike_where_they_come_from_and_where_they_are_told(
    blocks: dict[str, list[str]], node: str, agent: str, name: str, kind: AuthenticationLevel
) -> None:
    text = "".join(
        f'namespace "{label}" {{ capabilities = [{", ".join(chr(34) + each + chr(34) for each in named)}] }}\n'
        for label, named in blocks.items()
    )
    text += "".join(f'{area} {{ policy = "{level}" }}\n' for area, level in (("node", node), ("agent", agent)) if level)
    policies = (parse_policy("p", text),) if text else ()
    rights = Rights(
        kind, CompiledPolicies(policies if kind in (AuthenticationLevel.KNOWN, AuthenticationLevel.ANONYMOUS) else ())
    )
    for need in DECIDED:
        for scope in (ANYWHERE, Scope(namespace=name)):
            assert told(rights).allows(need, scope) == rights.allows(need, scope), (need, scope)
            assert told(rights).allows_everywhere(need) == rights.allows_everywhere(need), need


def leaves(need: Need) -> set[Need]:
    match need:
        case AnyOf(needs=parts) | AllOf(needs=parts):
            return {leaf for part in parts for leaf in leaves(part)}
        case EachRow(need=inner):
            return leaves(inner)
        case _:
            return {need}


def test_all_that_agents_without_a_server_decide_about_is_told() -> None:
    for route in ROUTES:
        if route.answered_by in BY_STATE:
            continue
        for leaf in leaves(route.needs):
            is_told = isinstance(leaf, InNamespace) or (
                isinstance(leaf, AtLevel) and leaf.area in (Area.AGENT, Area.NODE) and leaf.level is not Level.LIST
            )
            assert is_told or leaf in DECIDED, f"{route.path}: {leaf!r} is not told to agents without a server"


def test_a_server_tells_neither_variables_nor_the_names_of_policies() -> None:
    rules = 'namespace "own" { policy = "read" variables { path "hidden/*" { capabilities = ["read"] } } }'
    rights = Rights(
        AuthenticationLevel.KNOWN,
        CompiledPolicies((parse_policy("team-secret", f'{rules}\noperator {{ policy = "write" }}'),)),
    )
    wire = msgspec.json.encode(caller_rights(NoToken(), Resolved(rights), WHO, UnixNano(0)))
    assert b"own" in wire
    for hidden in (b"hidden", b"team-secret", b"operator", b"variables"):
        assert hidden not in wire, wire


def test_the_rights_last_no_longer_than_the_token_or_the_identity() -> None:
    rights, now = Rights(AuthenticationLevel.MANAGEMENT), UnixNano(1_000)

    def lifetime(caller: NoToken | ShownWorkload, token: ACLToken | None) -> int | None:
        return caller_rights(caller, Resolved(rights, token), WHO, now).lifetime

    identity = ShownWorkload(alloc_id="a", namespace="n", job="j", valid_until=UnixNano(1_300))
    assert lifetime(NoToken(), None) is None
    assert lifetime(NoToken(), ACLToken()) is None
    assert lifetime(NoToken(), ACLToken(expiration_time=UnixNano(1_500))) == 500
    assert lifetime(NoToken(), ACLToken(expiration_time=UnixNano(900))) == 0
    assert lifetime(identity, None) == 300


def test_a_kind_of_a_newer_server_has_no_rights() -> None:
    assert rights_of(CallerRights(kind="superuser")).kind is AuthenticationLevel.NOBODY


def test_records_know_who_a_caller_is() -> None:
    found = caller_rights(NoToken(), Resolved(Rights(AuthenticationLevel.MANAGEMENT)), WHO, UnixNano(0))
    assert identity_in(found) == Identity(resolved_by="token", accessor_id="an accessor")
