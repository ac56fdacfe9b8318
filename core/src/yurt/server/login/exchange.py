"""The exchange with an OIDC provider: the address for the browser, the code for an ID token, and UserInfo."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote_plus, urlencode

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from yurt.acl.login.assertion import CLIENT_SECRET, KEY_ID_HEADER, NOMAD, X5T_S256, algorithm_of
from yurt.acl.login.claims import Claims
from yurt.runtime.compact_jwt import Sign, signed_jwt
from yurt.runtime.env import Env
from yurt.sdk.errors import Invalid, YurtError
from yurt.sdk.value import NANOSECONDS
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.login_keys import PEM_MAX
from yurt.server.keys.login_signing import (
    challenge_of,
    key_of_pem,
    private_signer,
    secret_signer,
    thumbprint,
)
from yurt.server.keys.method_secrets import opened_secrets
from yurt.server.keys.root_keys import RootKeys
from yurt.server.login.fetching import Fetcher, provider_failed
from yurt.server.login.key_sets import Provider, config_of
from yurt.server.login.requests import LoginRequest
from yurt.structs.acl import ACLAuthMethod, ACLAuthMethodConfig, OIDCClientAssertion

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_S, ASSERTION_SKEW_S = 300, 1
ERROR_CODES: Final = frozenset({
    "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
    "invalid_scope",
})  # fmt: skip
"""Errors of a token endpoint (RFC 6749) that callers may see; other texts are untrusted."""


class LoginCallback(NamedTuple):
    """The parameters with which the provider redirected the browser."""

    code: str
    redirect_uri: str


class TokenAnswer(msgspec.Struct, frozen=True):
    """The fields of a token endpoint's answer that are used."""

    id_token: str
    access_token: str = ""


class _TokenError(msgspec.Struct, frozen=True):
    error: str = ""


def authorization_url(method: ACLAuthMethod, provider: Provider, request: LoginRequest, state: str, uri: str) -> str:
    """The URL to which the browser is sent."""
    config = config_of(method)
    endpoint = provider.document.authorization_endpoint
    if not endpoint:
        raise provider_failed(method, "its discovery document has no authorization_endpoint")
    query = {
        "client_id": config.oidc_client_id,
        "nonce": request.nonce,
        "redirect_uri": uri,
        "response_type": "code",
        "scope": " ".join(dict.fromkeys(("openid", *config.oidc_scopes))),
        "state": state,
    }
    if config.oidc_enable_pkce:
        query |= {"code_challenge": challenge_of(request.verifier), "code_challenge_method": "S256"}
    return endpoint + ("&" if "?" in endpoint else "?") + urlencode(query)


class CodeExchange:
    """Requests to the token and UserInfo endpoints."""

    def __init__(self, env: Env, fetcher: Fetcher, *, root_keys: RootKeys, keyring: Keyring) -> None:
        self._env = env
        self._fetcher = fetcher
        self._root_keys = root_keys
        self._keyring = keyring

    async def tokens(
        self, method: ACLAuthMethod, provider: Provider, request: LoginRequest, callback: LoginCallback
    ) -> TokenAnswer:
        """The tokens for a code, unchecked; raises Unavailable, or Invalid when the provider refuses the code."""
        config, endpoint = config_of(method), provider.document.token_endpoint
        if not endpoint:
            raise provider_failed(method, "its discovery document has no token_endpoint")
        form = {"grant_type": "authorization_code", "code": callback.code, "redirect_uri": callback.redirect_uri}
        if config.oidc_enable_pkce:
            form["code_verifier"] = request.verifier
        added, headers = await self._proof(method, provider)
        answer = await self._fetcher.post(method, endpoint, provider.trust, form=form | added, headers=headers)
        try:
            if answer.status != 200:
                code = msgspec.json.decode(answer.body, type=_TokenError).error
                reason = code if code in ERROR_CODES else f"status {answer.status}"
                raise Invalid(f'the provider of auth-method "{method.name}" refused the code: {reason}', status=500)
            return msgspec.json.decode(answer.body, type=TokenAnswer)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            why = "an answer without an ID token" if answer.status == 200 else f"status {answer.status}"
            raise provider_failed(method, f"its token endpoint gave {why}") from None

    async def user_info(self, method: ACLAuthMethod, provider: Provider, access_token: str) -> Claims | None:
        """The claims of UserInfo, unverified; None when there are none or they are not needed."""
        endpoint = provider.document.userinfo_endpoint
        if config_of(method).oidc_disable_user_info or not endpoint or not access_token:
            return None
        if not access_token.isprintable() or not access_token.isascii():
            raise provider_failed(method, "its access token cannot be sent in a header")
        answer = await self._fetcher.get(method, endpoint, provider.trust, bearer=access_token)
        if answer.status != 200:
            raise provider_failed(method, f"its UserInfo endpoint gave status {answer.status}")
        try:
            return msgspec.json.decode(answer.body, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            raise provider_failed(method, "its UserInfo answer is not a JSON object") from None

    async def _proof(self, method: ACLAuthMethod, provider: Provider) -> tuple[dict[str, str], dict[str, str]]:
        """The client's authentication: form fields and headers."""
        config = config_of(method)
        secrets = opened_secrets(self._keyring, method)
        if config.oidc_client_assertion is not None:
            signed = await self._assertion(config, config.oidc_client_assertion, secrets)
            return {
                "client_id": config.oidc_client_id, "client_assertion_type": ASSERTION_TYPE,
                "client_assertion": signed,
            }, {}  # fmt: skip
        if not secrets.client_secret:
            return {"client_id": config.oidc_client_id}, {}
        ways = provider.document.token_endpoint_auth_methods_supported
        if "client_secret_post" in ways and "client_secret_basic" not in ways:
            return {"client_id": config.oidc_client_id, "client_secret": secrets.client_secret}, {}
        pair = f"{quote_plus(config.oidc_client_id)}:{quote_plus(secrets.client_secret)}"
        return {}, {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}

    async def _assertion(
        self, config: ACLAuthMethodConfig, assertion: OIDCClientAssertion, secrets: tuple[str, str]
    ) -> str:
        now_s = self._env.now() // NANOSECONDS
        claims = {
            "iss": config.oidc_client_id,
            "sub": config.oidc_client_id,
            "aud": list(assertion.audience or (config.oidc_discovery_url,)),
            "exp": now_s + ASSERTION_S,
            "nbf": now_s - ASSERTION_SKEW_S,
            "iat": now_s,
            "jti": self._env.uuid(),
        }
        algorithm = algorithm_of(assertion)
        header = {**assertion.extra_headers, "alg": algorithm, "typ": "JWT"}
        if assertion.key_source == CLIENT_SECRET:
            return signed_jwt(header, claims, secret_signer(secrets[0], algorithm))
        if assertion.key_source == NOMAD:
            key_id = (await self._root_keys.active()).key_id
            key = await self._env.in_thread(self._keyring.signer, key_id)
            if not isinstance(key, RSAPrivateKey):
                raise Invalid(f"root key {key_id} is not an RSA key, which {algorithm} needs: rotate it", status=500)
            signer = private_signer(key, algorithm)
            return await self._env.in_thread(signed_jwt, {**header, "kid": key_id}, claims, signer)
        named, signer = await self._env.in_thread(_private_key, assertion, secrets[1])
        return await self._env.in_thread(signed_jwt, {**header, **named}, claims, signer)


def _private_key(assertion: OIDCClientAssertion, pem: str) -> tuple[Mapping[str, str], Sign]:
    """The header that names a private key, and the function that signs with it; reads files. Raises Invalid without
    their content."""
    key, algorithm = assertion.private_key, algorithm_of(assertion)
    assert key is not None, "a method is checked when it is stored"
    try:
        signer = private_signer(key_of_pem(pem or _text(key.pem_key_file), algorithm), algorithm)
        if key.key_id:
            return {KEY_ID_HEADER: key.key_id}, signer
        header = key.key_id_header or X5T_S256
        return {header: thumbprint(key.pem_cert or _text(key.pem_cert_file), header)}, signer
    except (YurtError, OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Invalid(f"the private key of the client assertion cannot be used: {why}", status=500) from None


def _text(path: str) -> str:
    with Path(path).open(encoding="ascii") as file:
        return file.read(PEM_MAX + 1)
