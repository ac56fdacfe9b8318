"""Caches the providers' discovery documents (OpenID Connect) and key sets for many logins.

    unknown --fetch--> known --age, or a key id that is not in it--> fetch again

An entry belongs to one version of a login method. It is fetched by one login while others wait that need it. A token
with an unknown key id has the keys fetched again at most once in KEYS_PAUSE_S, so that made-up ids cost a provider
little; a login whose key is known never waits for such a fetch. The first fetch does not start that pause, so a key
that the issuer has made since is accepted at once. A failure is remembered for FAILURE_PAUSE_S. Keys that
are too old are not used while the provider does not answer: a key that the issuer has withdrawn must let nobody in.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from typing import Final, NamedTuple

import msgspec

from yurt.acl.lru_cache import LruCache
from yurt.runtime.env import Env
from yurt.sdk.errors import Invalid, Unavailable
from yurt.server.keys.login_config import trust_of_pem
from yurt.server.keys.login_keys import KeySet, keys_of_jwks, keys_of_pem
from yurt.server.login.fetching import Fetcher, endpoint_problem, provider_failed
from yurt.structs.acl import ACLAuthMethod, ACLAuthMethodConfig

DOCUMENT_AGE_S: Final = 6 * 3600.0
KEYS_AGE_S: Final = 3600.0
KEYS_PAUSE_S: Final = 10.0
FAILURE_PAUSE_S: Final = 2.0
ENTRIES_MAX: Final = 256
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"


class ProviderDocument(msgspec.Struct, frozen=True):
    """The fields of a provider's document that are used."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    userinfo_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ()
    authorization_response_iss_parameter_supported: bool = False


class Provider(NamedTuple):
    """A provider's document, and the TLS context for requests to it."""

    document: ProviderDocument
    trust: ssl.SSLContext


class _Entry:
    """Cached facts for one version of a login method. Times are monotonic, in seconds."""

    __slots__ = (
        "failed_at_s",
        "failure",
        "keys",
        "keys_at_s",
        "keys_requested_s",
        "lock",
        "provider",
        "provider_at_s",
        "version",
    )  # fmt: skip

    def __init__(self, version: tuple[int, int]) -> None:
        self.version = version
        self.lock = asyncio.Lock()
        self.provider: Provider | None = None
        self.provider_at_s = 0.0
        self.keys: KeySet | None = None
        self.keys_at_s = 0.0
        self.keys_requested_s = -math.inf
        """The time of the last fetch for a missing key id."""
        self.failure = ""
        self.failed_at_s = 0.0


class KeySets:
    """The providers of login methods and their keys."""

    def __init__(self, env: Env, fetcher: Fetcher) -> None:
        self._env = env
        self._fetcher = fetcher
        self._entries: LruCache[str, _Entry] = LruCache(ENTRIES_MAX)

    async def provider(self, method: ACLAuthMethod) -> Provider:
        """The provider of a method with a discovery address; raises Unavailable."""
        entry = self._entry(method)
        async with entry.lock:
            return await self._provider(method, entry)

    async def keys(self, method: ACLAuthMethod, key_id: str | None) -> KeySet:
        """The keys that may have signed a token with this key id; raises Unavailable or Invalid."""
        config = config_of(method)
        if config.jwt_validation_pub_keys:
            return await self._env.in_thread(keys_of_pem, config.jwt_validation_pub_keys)
        entry = self._entry(method)
        cached = self._current(entry)
        if cached is not None and _has(cached, key_id):
            return cached
        async with entry.lock:
            # Another login may have fetched them meanwhile.
            cached, now_s = self._current(entry), self._env.monotonic()
            if cached is not None and (_has(cached, key_id) or now_s - entry.keys_requested_s < KEYS_PAUSE_S):
                return cached
            if cached is not None:
                entry.keys_requested_s = now_s
            entry.keys = await self._fetched_keys(method, entry)
            entry.keys_at_s = now_s
            return entry.keys

    def _current(self, entry: _Entry) -> KeySet | None:
        """The keys of an entry, unless they are too old."""
        return entry.keys if self._env.monotonic() - entry.keys_at_s < KEYS_AGE_S else None

    def _entry(self, method: ACLAuthMethod) -> _Entry:
        version = (method.create_index, method.modify_index)
        entry = self._entries.get(method.name)
        if entry is None or entry.version != version:
            entry = self._entries.put(method.name, _Entry(version))
        return entry

    async def _provider(self, method: ACLAuthMethod, entry: _Entry) -> Provider:
        now_s = self._env.monotonic()
        if entry.provider is None or now_s - entry.provider_at_s >= DOCUMENT_AGE_S:
            entry.provider = None
            config = config_of(method)
            trust = await self._env.in_thread(trust_of_pem, list(config.discovery_ca_pem))
            url = config.oidc_discovery_url.rstrip("/") + DISCOVERY_PATH
            body = await self._fetch(method, entry, url, trust)
            try:
                entry.provider = Provider(_document(config, body), trust)
            except Invalid as error:
                raise self._failed(entry, provider_failed(method, str(error))) from None
            entry.provider_at_s = now_s
        return entry.provider

    async def _fetched_keys(self, method: ACLAuthMethod, entry: _Entry) -> KeySet:
        config = config_of(method)
        if method.type == "JWT" and config.jwks_url:
            url = config.jwks_url
            trust = await self._env.in_thread(trust_of_pem, [config.jwks_ca_cert] if config.jwks_ca_cert else [])
        else:
            provider = await self._provider(method, entry)
            url, trust = provider.document.jwks_uri, provider.trust
        body = await self._fetch(method, entry, url, trust)
        try:
            return await self._env.in_thread(keys_of_jwks, body)
        except Invalid as error:
            raise self._failed(entry, provider_failed(method, str(error))) from None

    async def _fetch(self, method: ACLAuthMethod, entry: _Entry, url: str, trust: ssl.SSLContext) -> bytes:
        if entry.failure and self._env.monotonic() - entry.failed_at_s < FAILURE_PAUSE_S:
            raise Unavailable(entry.failure)
        entry.failure = ""
        try:
            answer = await self._fetcher.get(method, url, trust)
        except Unavailable as error:
            raise self._failed(entry, error) from None
        if answer.status != 200:
            raise self._failed(entry, provider_failed(method, f"status {answer.status}"))
        return answer.body

    def _failed(self, entry: _Entry, error: Unavailable) -> Unavailable:
        entry.failure, entry.failed_at_s = str(error), self._env.monotonic()
        return error


def config_of(method: ACLAuthMethod) -> ACLAuthMethodConfig:
    """The configuration of a method; raises Invalid when it is missing."""
    if method.config is None:
        raise Invalid(f'auth-method "{method.name}" has no configuration', status=500)
    return method.config


def _has(keys: KeySet, key_id: str | None) -> bool:
    return key_id is None or any(key.key_id in (None, key_id) for key in keys.keys)


def _document(config: ACLAuthMethodConfig, body: bytes) -> ProviderDocument:
    try:
        document = msgspec.json.decode(body, type=ProviderDocument)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise Invalid("its discovery document is not a JSON object with issuer and jwks_uri") from None
    if document.issuer != config.oidc_discovery_url:
        raise Invalid(f'it says that it is the issuer "{document.issuer[:256]}", not "{config.oidc_discovery_url}"')
    for name in ("jwks_uri", "authorization_endpoint", "token_endpoint", "userinfo_endpoint"):
        url = getattr(document, name)
        why = endpoint_problem(url, config.oidc_discovery_url) if url or name == "jwks_uri" else ""
        if why:
            raise Invalid(f"the {name} of its discovery document {why}")
    return document
