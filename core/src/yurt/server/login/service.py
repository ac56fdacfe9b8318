"""Logins by JWT and by OIDC, from a credential to a stored token."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from yurt.acl.login.binding import BindingOutcome
from yurt.acl.login.checks import CheckedClaims, checked_id_token, checked_jwt, is_redirect_allowed
from yurt.acl.login.minting import Login, NewToken, log_in
from yurt.fsm.basis import expectation
from yurt.sdk.errors import Conflict, Invalid, Reason, Unavailable
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.keys import Keys
from yurt.server.keys.login_tokens import token_header, verified_claims
from yurt.server.log.replica import Replica
from yurt.server.login.exchange import CodeExchange, LoginCallback, authorization_url
from yurt.server.login.fetching import Fetcher
from yurt.server.login.key_sets import KeySets, Provider, config_of
from yurt.server.login.requests import (
    UNKNOWN,
    Parties,
    SeenRequests,
    new_request,
    opened_request,
    sealed_request,
)
from yurt.server.resources.acl_tokens import MadeToken, made_token
from yurt.state import Snapshot
from yurt.structs.acl import ACLAuthMethod, hash_of_secret
from yurt.structs.commands import CreateACLLoginToken, Expectation

log = logging.getLogger(__name__)

LOGIN_S: Final = 60.0
"""The time limit of a login, requests to providers included."""
RUNNING_MAX: Final = 64
"""The maximum number of concurrent logins of one method."""
JWT, OIDC = "JWT", "OIDC"


class CompleteAuth(NamedTuple):
    """The parameters of a callback from the provider."""

    parties: Parties
    state: str
    code: str
    issuer: str


class Logins:
    """Operations for callers without a token. Each raises Invalid, PermissionDenied or Unavailable."""

    def __init__(self, replica: Replica, keys: Keys) -> None:
        self._replica = replica
        self._keyring: Keyring = keys.keyring
        self._root_keys = keys.root_keys
        fetcher = Fetcher(replica.env)
        self._key_sets = KeySets(replica.env, fetcher)
        self._exchange = CodeExchange(replica.env, fetcher, root_keys=keys.root_keys, keyring=keys.keyring)
        self._seen = SeenRequests()
        self._running: dict[str, int] = {}

    async def by_jwt(self, name: str, token: str) -> MadeToken:
        """A token for a JWT."""
        method = self._method(name, JWT)
        async with self._slot(method):
            claims = await self._verified(method, token)
            checked = checked_jwt(method, claims, self._replica.env.now())
            return await self._stored(checked, self._replica.env.uuid())

    async def auth_url(self, parties: Parties) -> str:
        """The URL to which the browser of an OIDC login is sent."""
        method = self._method(parties.method, OIDC)
        if not is_redirect_allowed(config_of(method), parties.redirect_uri):
            raise Invalid(f"unauthorized redirect_uri: {parties.redirect_uri[:256]}")
        async with self._slot(method):
            provider = await self._key_sets.provider(method)
            key = await self._root_keys.active()
            request = new_request(self._replica.env, method)
            state = sealed_request(self._keyring, key.key_id, request, parties)
            return authorization_url(method, provider, request, state, parties.redirect_uri)

    async def by_oidc(self, complete: CompleteAuth) -> MadeToken:
        """A token for the code of a callback, once."""
        method = self._method(complete.parties.method, OIDC)
        request = opened_request(self._keyring, self._replica.state, complete.state, complete.parties)
        if request.method_index != method.modify_index:
            raise Invalid(f'auth-method "{method.name}" has changed during the login: log in again')
        self._seen.take(request, self._replica.env.now())
        async with self._slot(method):
            provider = await self._key_sets.provider(method)
            _check_issuer(method, provider, complete.issuer)
            callback = LoginCallback(complete.code, complete.parties.redirect_uri)
            answer = await self._exchange.tokens(method, provider, request, callback)
            claims = await self._verified(method, answer.id_token)
            # The ID token is checked before the provider is asked for anything else about the user.
            checked_id_token(method, claims, nonce=request.nonce, now=self._replica.env.now())
            user_info = await self._exchange.user_info(method, provider, answer.access_token)
            now = self._replica.env.now()
            checked = checked_id_token(method, claims, nonce=request.nonce, now=now, user_info=user_info)
            try:
                return await self._stored(checked, request.accessor_id)
            except Conflict:
                raise Invalid(UNKNOWN, status=500) from None

    def _method(self, name: str, kind: str) -> ACLAuthMethod:
        method = self._replica.state.acl_auth_methods.get(name)
        if method is None:
            raise Invalid(f'auth-method "{name[:140]}" not found')
        if method.type != kind:
            raise Invalid(f"unsupported auth-method type: {method.type}")
        return method

    @asynccontextmanager
    async def _slot(self, method: ACLAuthMethod) -> AsyncIterator[None]:
        """Bounds a method's logins in number and time, so that a hanging provider delays only its own logins."""
        if self._running.get(method.name, 0) >= RUNNING_MAX:
            why = f'{RUNNING_MAX} logins by auth-method "{method.name}" wait for its provider already'
            raise Unavailable(f"too many auth requests: {why}", reason=Reason.OVERLOADED, status=429)
        self._running[method.name] = self._running.get(method.name, 0) + 1
        try:
            async with self._replica.env.timeout(LOGIN_S):
                yield
        except TimeoutError:
            raise Unavailable(f'a login by auth-method "{method.name}" took longer than {LOGIN_S:g} s') from None
        finally:
            self._running[method.name] -= 1
            if not self._running[method.name]:
                del self._running[method.name]

    async def _verified(self, method: ACLAuthMethod, token: str) -> dict[str, object]:
        """The claims of a token with a valid signature."""
        header = token_header(token)
        keys = await self._key_sets.keys(method, header.kid)
        claims = await self._replica.env.in_thread(verified_claims, token, keys, config_of(method).signing_algs)
        if config_of(method).verbose_logging:
            log.debug("login claims: method=%s claims=%s", method.name, sorted(claims))
        return dict(claims)

    async def _stored(self, checked: CheckedClaims, accessor_id: str) -> MadeToken:
        """The token of verified claims, decided on the newest state and stored if that is unchanged in `apply`."""
        env = self._replica.env
        secret = env.uuid()
        new = NewToken(accessor_id, hash_of_secret(secret), env.now())
        logins: list[Login] = []

        async def decision(state: Snapshot) -> CreateACLLoginToken:
            login = await env.in_thread(log_in, state, checked, new)
            logins.append(login)
            return CreateACLLoginToken(token=login.token, based_on=basis_of(state, checked.method, login))

        try:
            committed = await self._replica.decide(decision)
        finally:
            if logins and checked.config.verbose_logging:
                _log_verbose(checked.method, logins[-1])
        made = made_token(committed, accessor_id, secret)
        log.info("login: method=%s accessor=%s type=%s", checked.method.name, accessor_id, made.token.type)
        return made


def basis_of(state: Snapshot, method: ACLAuthMethod, login: Login) -> tuple[Expectation, ...]:
    """The rows on which a login was decided: method, rules that bind, and the policies and roles they give.

    Any other rule that changes meanwhile could only have added to that.
    """
    rules = [outcome.rule_id for outcome in login.bound.outcomes if outcome.outcome is BindingOutcome.BOUND]
    return (
        expectation(state, "acl_auth_methods", method.name),
        *(expectation(state, "acl_binding_rules", rule_id) for rule_id in rules),
        *(expectation(state, "acl_policies", name) for name in login.token.policies),
        *(expectation(state, "acl_roles", link.id) for link in login.token.roles),
    )


def _check_issuer(method: ACLAuthMethod, provider: Provider, issuer: str) -> None:
    """RFC 9207: a provider that names itself in callbacks does so in each; a wrong name is never right."""
    is_needed = provider.document.authorization_response_iss_parameter_supported
    if (is_needed or issuer) and issuer != config_of(method).oidc_discovery_url:
        raise Invalid("invalid or missing issuer parameter in callback", status=500)


def _log_verbose(method: ACLAuthMethod, login: Login) -> None:
    """Mapped claims and rules, never tokens, codes or nonces."""
    log.debug("login values: method=%s values=%s lists=%s", method.name, *login.claims)
    for outcome in login.bound.outcomes:
        log.debug(
            "login rule: method=%s rule=%s outcome=%s detail=%s",
            method.name, outcome.rule_id, outcome.outcome, outcome.detail,
        )  # fmt: skip
