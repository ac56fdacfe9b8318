"""The token of a login: its rights, name, locality and end."""

from __future__ import annotations

from typing import NamedTuple

from yurt.acl.login.binding import NOTHING_BOUND, Bound, bind
from yurt.acl.login.checks import CheckedClaims
from yurt.acl.login.claims import MappedClaims, mapped_claims
from yurt.acl.login.refusals import misconfigured
from yurt.acl.login.templates import METHOD_NAME, METHOD_TYPE, TOKEN_NAME_FORMAT, VALUE, interpolated
from yurt.acl.validation import check_token
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano
from yurt.state import Snapshot
from yurt.structs.acl import CLIENT, GLOBAL, MANAGEMENT, ACLAuthMethod, ACLToken


class NewToken(NamedTuple):
    """The values that a shell chooses for a token."""

    accessor_id: str
    secret_hash: str
    now: UnixNano


class Login(NamedTuple):
    """A token to be stored, and the origin of its rights."""

    token: ACLToken
    claims: MappedClaims
    bound: Bound


def log_in(state: Snapshot, checked: CheckedClaims, new: NewToken) -> Login:
    """The token for checked claims; raises Invalid when no rule binds, PermissionDenied for bad claims.

    `state` is the newest: a method, rule, role or policy that was deleted meanwhile gives nothing.
    """
    method = checked.method
    if state.acl_auth_methods.get(method.name) != method:
        raise Invalid(f'auth-method "{method.name}" has changed during the login: log in again')
    claims = mapped_claims(checked.config, checked.claims)
    bound = bind(state, method, claims)
    if not bound:
        raise Invalid(NOTHING_BOUND)
    token = ACLToken(
        accessor_id=new.accessor_id,
        secret_hash=new.secret_hash,
        name=_token_name(method, claims),
        type=MANAGEMENT if bound.is_management else CLIENT,
        policies=bound.policies,
        roles=bound.roles,
        is_global=method.token_locality == GLOBAL,
        create_time=new.now,
        # A method that somehow lacks a lifetime makes tokens that are over at once, never ones without an end.
        expiration_time=UnixNano(new.now + max(0, method.max_token_ttl)),
        expiration_ttl=method.max_token_ttl,
    )
    check_token(token)
    return Login(token, claims, bound)


def _token_name(method: ACLAuthMethod, claims: MappedClaims) -> str:
    values = {f"{VALUE}{name}": text for name, text in claims.values.items()}
    names = {METHOD_TYPE: method.type, METHOD_NAME: method.name, **values}
    try:
        return interpolated(method.token_name_format or TOKEN_NAME_FORMAT, names)
    except Invalid as error:
        raise misconfigured(f"cannot compute the name of the token: {error}") from None
