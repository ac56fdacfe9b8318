"""Checks the claims of a correctly signed token: issuer, audience, times, nonce, authorized party.

A JWT needs one of `iat`, `nbf` and `exp`; a missing `exp` or `nbf` is made up with a leeway, so that no token lasts
for ever. An ID token of OIDC is checked as its specification asks. Times are unix nanoseconds; a moment that is
exactly at a bound is still good.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from yurt.acl.login.claims import Claims
from yurt.acl.login.refusals import misconfigured, not_accepted
from yurt.sdk.value import NANOSECONDS, UnixNano
from yurt.structs.acl import ACLAuthMethod, ACLAuthMethodConfig

EXPIRATION_LEEWAY: Final = 150 * NANOSECONDS
NOT_BEFORE_LEEWAY: Final = 150 * NANOSECONDS
CLOCK_SKEW_LEEWAY: Final = 60 * NANOSECONDS
_SECONDS_MAX: Final = 1 << 40
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_FIXED: Final = ("iss", "sub")
"""Claims of an ID token that a UserInfo answer does not override."""


class CheckedClaims(NamedTuple):
    """Claims that satisfy a login method; made by this module alone."""

    method: ACLAuthMethod
    config: ACLAuthMethodConfig
    claims: Claims


def checked_jwt(method: ACLAuthMethod, claims: Claims, now: UnixNano) -> CheckedClaims:
    """The claims of a correctly signed JWT; raises PermissionDenied."""
    config = _config(method, "JWT")
    is_discovered = bool(config.oidc_discovery_url) and not (config.jwt_validation_pub_keys or config.jwks_url)
    # Issuers may share their keys: without a list only the one whose document led to them is meant.
    accepted = config.bound_issuer or ((config.oidc_discovery_url,) if is_discovered else ())
    if accepted:
        issuer = claims.get("iss")
        if issuer not in accepted:
            raise not_accepted(f"invalid JWT issuer: {str(issuer or '')[:256]}")
    if config.bound_audiences and not set(_audiences(claims)) & set(config.bound_audiences):
        raise not_accepted("invalid JWT audience: none of the method's bound audiences")
    _check_jwt_times(config, claims, now)
    return CheckedClaims(method, config, claims)


def checked_id_token(
    method: ACLAuthMethod, claims: Claims, *, nonce: str, now: UnixNano, user_info: Claims | None = None
) -> CheckedClaims:
    """The claims of a correctly signed ID token, with those of UserInfo if asked; raises PermissionDenied."""
    config = _config(method, "OIDC")
    if claims.get("iss") != config.oidc_discovery_url:
        raise not_accepted(f"invalid issuer: {str(claims.get('iss') or '')[:256]}")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise not_accepted("the ID token has no subject")
    shown = claims.get("nonce")
    if not nonce or not isinstance(shown, str) or not hmac.compare_digest(_bytes(shown), _bytes(nonce)):
        raise not_accepted("invalid nonce")
    _check_id_token_audience(config, claims)
    _check_id_token_times(claims, now)
    if user_info is None:
        return CheckedClaims(method, config, claims)
    if user_info.get("sub") != subject:
        raise not_accepted("UserInfo is about another subject than the ID token")
    others = {claim: value for claim, value in user_info.items() if claim not in _FIXED}
    return CheckedClaims(method, config, {**claims, **others})


def is_redirect_allowed(config: ACLAuthMethodConfig, uri: str) -> bool:
    """Whether a login may redirect to an address: one of the list, or any without a list.

    Command lines listen at a free port of the loopback interface: there the port does not matter.
    """
    if not config.allowed_redirect_uris or uri in config.allowed_redirect_uris:
        return True
    expected = _without_loopback_port(uri)
    return expected is not None and any(
        expected == _without_loopback_port(each) for each in config.allowed_redirect_uris
    )


def _without_loopback_port(uri: str) -> tuple[str, ...] | None:
    """The parts of an address of the loopback interface, without its port; None for any other."""
    try:
        parts = urlsplit(uri)
        _ = parts.port  # Raises ValueError for an invalid port.
    except ValueError:
        return None
    if parts.hostname not in _LOOPBACK or parts.username is not None or parts.password is not None:
        return None
    return parts.scheme, parts.hostname, parts.path, parts.query, parts.fragment


def _config(method: ACLAuthMethod, kind: str) -> ACLAuthMethodConfig:
    if method.type != kind or method.config is None:
        raise misconfigured(f"unsupported auth-method type: {method.type}")
    return method.config


def _audiences(claims: Claims) -> tuple[str, ...]:
    found = claims.get("aud")
    items: Iterable[object] = found if isinstance(found, list) else () if found is None else (found,)
    audiences = tuple(each for each in items if isinstance(each, str))
    if not all(isinstance(each, str) for each in items):
        raise not_accepted("the audience is not a text or a list of texts")
    return audiences


def _check_id_token_audience(config: ACLAuthMethodConfig, claims: Claims) -> None:
    audiences = _audiences(claims)
    expected = config.bound_audiences or (config.oidc_client_id,)
    if not set(audiences) & set(expected):
        raise not_accepted("invalid audience")
    party = claims.get("azp")
    is_needed = len(audiences) > 1 or config.oidc_client_id not in audiences
    if (party is not None or is_needed) and party != config.oidc_client_id:
        raise not_accepted("the authorized party (azp) is not the client of the method")


def _check_id_token_times(claims: Claims, now: UnixNano) -> None:
    issued, begins, ends = (_time(claims, name) for name in ("iat", "nbf", "exp"))
    if ends is None:
        raise not_accepted("the ID token has no expiration time")
    if now > ends:
        raise not_accepted("token is expired")
    if issued is not None and issued > now + CLOCK_SKEW_LEEWAY:
        raise not_accepted("token was issued in the future")
    if begins is not None and begins > now + CLOCK_SKEW_LEEWAY:
        raise not_accepted("token is not valid yet")


def _check_jwt_times(config: ACLAuthMethodConfig, claims: Claims, now: UnixNano) -> None:
    issued, begins, ends = (_time(claims, name) for name in ("iat", "nbf", "exp"))
    if issued is None and begins is None and ends is None:
        raise not_accepted("at least one of the claims iat, nbf and exp must be set")
    if ends is None:
        starts = max(each for each in (issued, begins) if each is not None)
        ends = starts + _leeway(config.expiration_leeway, EXPIRATION_LEEWAY)
    if begins is None:
        begins = issued if issued is not None else ends - _leeway(config.not_before_leeway, NOT_BEFORE_LEEWAY)
    skew = _leeway(config.clock_skew_leeway, CLOCK_SKEW_LEEWAY)
    if now > ends + skew:
        raise not_accepted("token is expired")
    if now < begins - skew:
        raise not_accepted("token is not valid yet")
    if issued is not None and now < issued - skew:
        raise not_accepted("token was issued in the future")


def _leeway(configured: int, default: int) -> int:
    """0 means the default, a negative value none."""
    return default if configured == 0 else max(configured, 0)


def _time(claims: Claims, name: str) -> int | None:
    """A time in unix ns; 0 and null mean none, as in Nomad."""
    value = claims.get(name)
    if value is None or value == 0:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Written so that NaN fails it.
    if not (is_number and isinstance(value, int | float) and 0 < value < _SECONDS_MAX):
        raise not_accepted(f"the claim {name} is not a time in seconds")
    return value * NANOSECONDS if isinstance(value, int) else int(value * NANOSECONDS)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
