"""Validates policies, roles and tokens before they are proposed; `apply` decides the rest. The texts are Nomad's.

Each function raises Invalid with all that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from yurt.acl.names import NAME
from yurt.acl.policy import PolicyError
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Duration, duration_text
from yurt.structs.acl import (
    CLIENT,
    GLOBAL,
    LOCAL,
    MANAGEMENT,
    POLICY,
    ROLE,
    ACLAuthMethod,
    ACLBindingRule,
    ACLPolicy,
    ACLRole,
    ACLToken,
)

DESCRIPTION_BYTES_MAX: Final = 256
TOKEN_NAME_BYTES_MAX: Final = 256
SIGNING_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA",
)  # fmt: skip
"""What tokens of login methods may be signed with: public keys only. With HMAC anybody who may check could also sign,
and `none` signs nothing."""
URL_MAX: Final = 2048
LINKS_MAX: Final = 1024
"""Policies or roles of one token or role."""


def check_policy(policy: ACLPolicy) -> None:
    """A policy before it is stored."""
    found = _name_and_description(policy.name, policy.description)
    from yurt.acl.parsing import parse_policy

    try:
        parse_policy(policy.name, policy.rules)
    except PolicyError as error:
        found.append(f"failed to parse rules: {error}")
    job = policy.job_acl
    if job is not None:
        if job.job_id and not job.namespace:
            found.append("namespace must be set to set job ID")
        if job.group and not job.job_id:
            found.append("job ID must be set to set group")
        if job.task and not job.group:
            found.append("group must be set to set task")
    raise_problems("policy", found)


def check_role(role: ACLRole) -> None:
    """A role before it is stored."""
    found = _name_and_description(role.name, role.description)
    if not role.policies:
        found.append("at least one policy should be specified")
    if len(role.policies) > LINKS_MAX:
        found.append(f"more than {LINKS_MAX} policies")
    raise_problems("role", found)


def check_token(token: ACLToken) -> None:
    """The parts of a token that determine its holder's rights."""
    found = []
    if len(token.name.encode("utf-8", "surrogatepass")) > TOKEN_NAME_BYTES_MAX:
        found.append("token name too long")
    if len(token.policies) + len(token.roles) > LINKS_MAX:
        found.append(f"more than {LINKS_MAX} policies and roles")
    if "" in token.policies:
        found.append("a policy has no name")
    if token.type == CLIENT:
        if not token.policies and not token.roles:
            found.append("client token missing policies or roles")
    elif token.type == MANAGEMENT:
        if token.policies or token.roles:
            found.append("management token cannot be associated with policies or roles")
    else:
        found.append("token type must be client or management")
    raise_problems("token", found)


def check_token_times(token: ACLToken, *, min_ttl: Duration, max_ttl: Duration) -> None:
    """The expiry of a new token, within two bounds, or none."""
    found = []
    if token.expiration_ttl < 0:
        found.append(f"token expiration TTL '{duration_text(token.expiration_ttl)}' should not be negative")
    elif token.expiration_time:
        lasts = token.expiration_time - token.create_time
        was = f"in the future (was {duration_text(lasts)})"
        if lasts < 0:
            found.append("expiration time cannot be before create time")
        elif lasts > max_ttl:
            found.append(f"expiration time cannot be more than {duration_text(max_ttl)} {was}")
        elif lasts < min_ttl:
            found.append(f"expiration time cannot be less than {duration_text(min_ttl)} {was}")
    raise_problems("token", found)


def check_auth_method(method: ACLAuthMethod, *, min_ttl: Duration, max_ttl: Duration) -> None:
    """A login method before it is stored."""
    found = []
    if not NAME.fullmatch(method.name):
        found.append(f"invalid name '{method.name[:140]}'")
    if method.token_locality not in (LOCAL, GLOBAL):
        found.append(f"invalid token locality '{method.token_locality[:64]}'")
    if method.type not in ("OIDC", "JWT"):
        found.append(f"invalid token type '{method.type[:64]}'")
    else:
        found.extend(f"invalid config: {text}" for text in _config_problems(method))
    found.extend(_token_name_problems(method))
    if not min_ttl <= method.max_token_ttl <= max_ttl:
        text = f"(should be between {duration_text(min_ttl)} and {duration_text(max_ttl)})"
        found.append(f"invalid MaxTokenTTL value '{duration_text(method.max_token_ttl)}' {text}")
    raise_problems("auth method", found)


def check_binding_rule(rule: ACLBindingRule) -> None:
    """A binding rule before it is stored."""
    found = []
    if len(rule.description.encode("utf-8", "surrogatepass")) > DESCRIPTION_BYTES_MAX:
        found.append(f"description longer than {DESCRIPTION_BYTES_MAX}")
    if not rule.auth_method:
        found.append("auth method is missing")
    if not rule.bind_type:
        found.append("bind type is missing")
    elif rule.bind_type in (ROLE, POLICY):
        if not rule.bind_name:
            found.append("bind name is missing")
    elif rule.bind_type == MANAGEMENT:
        if rule.bind_name:
            found.append("bind name should be empty")
    else:
        found.append(f'unsupported bind type: "{rule.bind_type[:64]}"')
    found.extend(_bind_name_problems(rule.bind_name))
    # What only logins need is imported with the first binding rule or login method.
    from yurt.acl.login.selectors import compile_selector

    try:
        compile_selector(rule.selector)
    except Invalid as error:
        found.append(f"selector is invalid: {error}")
    raise_problems("binding rule", found)


def _config_problems(method: ACLAuthMethod) -> Iterable[str]:
    config = method.config
    if config is None:
        yield "missing"
    elif method.type == "OIDC":
        if not config.oidc_discovery_url:
            yield "missing OIDCDiscoveryURL"
        if not config.oidc_client_id:
            yield "missing OIDCClientID"
    elif not (config.oidc_discovery_url or config.jwks_url or config.jwt_validation_pub_keys):
        yield "JWT auth method requires either OIDCDiscoveryURL, or JWKS URL, or JWTValidationPubKeys set"
    if config is not None:
        for name, url in (("OIDCDiscoveryURL", config.oidc_discovery_url), ("JWKSURL", config.jwks_url)):
            why = url_problem(url) if url else ""
            if why:
                yield f"{name} {why}"
        if config.oidc_client_assertion is not None:
            from yurt.acl.login.assertion import assertion_problems

            problems = assertion_problems(config, config.oidc_client_assertion)
            yield from (f"invalid OIDCClientAssertion: {text}" for text in problems)
        for algorithm in config.signing_algs:
            if algorithm not in SIGNING_ALGORITHMS:
                expected = ", ".join(SIGNING_ALGORITHMS)
                yield f'unsupported signing algorithm "{algorithm[:64]}", expected one of {expected}'
        for mappings in (config.claim_mappings, config.list_claim_mappings):
            yield from _mapping_problems(mappings)


def url_problem(url: str) -> str:
    """Why an address cannot be asked for keys, or ""; plain HTTP only to this host, as keys that come over it could be
    anybody's.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # Raises ValueError for an invalid port.
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or len(url) > URL_MAX:
        return f'is not an address such as https://id.example.com: "{url[:140]}"'
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "must not hold a user, a password or a fragment"
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        return f'must begin with https:// ("{url[:140]}"): over plain HTTP anybody on the way could replace the keys'
    return ""


def is_loopback(host: str) -> bool:
    """Whether a host name refers to this host itself."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _mapping_problems(mappings: Mapping[str, str]) -> Iterable[str]:
    """Two claims mapped to one name: it would be undefined which one a rule sees."""
    claim_of: dict[str, str] = {}
    for claim, name in sorted(mappings.items()):
        if name in claim_of:
            yield f'claims "{claim_of[name][:64]}" and "{claim[:64]}" are both mapped to "{name[:64]}"'
        claim_of[name] = claim


def _token_name_problems(method: ACLAuthMethod) -> Iterable[str]:
    from yurt.acl.login.templates import METHOD_NAME, METHOD_TYPE, VALUE, variables

    mapped = () if method.config is None else method.config.claim_mappings.values()
    available = {METHOD_TYPE, METHOD_NAME, *(f"{VALUE}{name}" for name in mapped)}
    try:
        unknown = [name for name in variables(method.token_name_format) if name not in available]
    except Invalid as error:
        yield f"invalid TokenNameFormat: {error}"
        return
    yield from (f"invalid TokenNameFormat: no claim is mapped to {name[:64]}" for name in unknown)


def _bind_name_problems(bind_name: str) -> Iterable[str]:
    """Which names a method maps may change; what can never become a name is a mistake now."""
    from yurt.acl.login.templates import VALUE, interpolated, variables

    try:
        used = variables(bind_name)
    except Invalid as error:
        yield f"bind name is invalid: {error}"
        return
    unknown = [name for name in used if not name.startswith(VALUE)]
    yield from (f"bind name is invalid: {name[:64]} is unknown, only ${{value.NAME}} is possible" for name in unknown)
    if bind_name and not NAME.fullmatch(interpolated(bind_name, dict.fromkeys(used, "x"))):
        yield f'bind name is invalid: "{bind_name[:140]}" cannot become the name of a role or policy'


def _name_and_description(name: str, description: str) -> list[str]:
    found = []
    if not NAME.fullmatch(name):
        found.append(f"invalid name '{name[:140]}'")
    if len(description.encode("utf-8", "surrogatepass")) > DESCRIPTION_BYTES_MAX:
        found.append(f"description longer than {DESCRIPTION_BYTES_MAX}")
    return found


def raise_problems(kind: str, found: list[str]) -> None:
    """Raises Invalid with all problems, if there are any."""
    if found:
        count = f"{len(found)} error{'s' if len(found) > 1 else ''} occurred:\n"
        raise Invalid(f"{kind} 0 invalid: {count}" + "".join(f"\t* {text}\n" for text in found) + "\n")
