"""Objects of access control: policies, tokens, roles, login methods and binding rules.

No secret of a token is stored, only its SHA-256: a secret has 122 random bits or more, so its hash cannot be reversed
by trying. A token is found by this hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Final

from yurt.sdk.value import INTERNAL, Duration, Timestamp, UnixNano, Value, no_entries, replace, spelled

CLIENT: Final = "client"
MANAGEMENT: Final = "management"
ANONYMOUS: Final = "anonymous"
"""The name of the policy of callers without a token, and the accessor id of their token."""
LOCAL: Final = "local"
GLOBAL: Final = "global"
ROLE: Final = "role"
POLICY: Final = "policy"


SECRET: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
"""The form of secrets of tokens and nodes: a UUID."""


def hash_of_secret(secret: str) -> str:
    """The hash under which a token's secret is stored; the same for every spelling of a UUID."""
    return hashlib.sha256(secret.lower().encode("utf-8", "surrogatepass")).hexdigest()


class JobACL(Value):
    """The workloads that a policy is attached to: those of a namespace, a job, a group or a task."""

    namespace: str = ""
    job_id: str = ""
    group: str = ""
    task: str = ""


class ACLPolicy(Value):
    """A policy; `rules` is its text as written."""

    name: str = ""
    description: str = ""
    rules: str = ""
    job_acl: JobACL | None = None
    create_index: int = 0
    modify_index: int = 0


class ACLRolePolicyLink(Value):
    """A reference to a policy of a role."""

    name: str = ""


class ACLRole(Value):
    """A named set of policies."""

    id: str = ""
    name: str = ""
    description: str = ""
    policies: tuple[ACLRolePolicyLink, ...] = ()
    create_index: int = 0
    modify_index: int = 0


class ACLTokenRoleLink(Value):
    """A reference to a role of a token; stored by the role's id."""

    id: str = ""
    name: str = ""


class ACLToken(Value, rename=spelled(is_global="Global")):
    """A token as stored, without its secret. Times are unix ns; an expiration of 0 means never."""

    accessor_id: str = ""
    secret_hash: Annotated[str, INTERNAL] = ""
    name: str = ""
    type: str = CLIENT
    policies: tuple[str, ...] = ()
    roles: tuple[ACLTokenRoleLink, ...] = ()
    is_global: bool = False
    create_time: Timestamp = 0
    expiration_time: Timestamp = 0
    expiration_ttl: Duration = Duration(0)
    create_index: int = 0
    modify_index: int = 0


def is_expired(token: ACLToken, now: UnixNano) -> bool:
    """Whether a token has expired."""
    return 0 < token.expiration_time <= now


class OneTimeToken(Value):
    """A secret that can be exchanged once for the token of its accessor.

    The secret of the other token is sealed with a key that only the one-time secret gives: the row opens nothing.
    """

    secret_hash: Annotated[str, INTERNAL] = ""
    accessor_id: str = ""
    sealed_secret: Annotated[bytes, INTERNAL] = b""
    expires_at: Timestamp = 0
    create_index: int = 0
    modify_index: int = 0


class ACLBootstrap(Value):
    """The record of the ACL bootstrap; a reset must name its `modify_index`."""

    accessor_id: str = ""
    create_index: int = 0
    modify_index: int = 0


class ACLRevocation(Value):
    """A revoked token, recorded so that a restored snapshot does not bring it back.

    The row without an accessor id stands for all that were forgotten to bound the table: of a snapshot that is older
    than its `modify_index` only tokens that are still there are restored.
    """

    accessor_id: str = ""
    expiration_time: UnixNano = UnixNano(0)
    token_create_time: UnixNano = UnixNano(0)
    """The creation time of the token, which distinguishes it from a later one with the same accessor id; 0: not
    recorded."""
    create_index: int = 0
    modify_index: int = 0


class EndedSession(Value):
    """A signed-out browser session, whose cookies are refused."""

    id: str = ""
    secret_hash: Annotated[str, INTERNAL] = ""
    """The hash of the secret of the session's token."""
    forget_at: Timestamp = 0
    """The time at which the last of its cookies expires by itself."""
    create_index: int = 0
    modify_index: int = 0


class OIDCClientAssertionKey(Value):
    """The private key of a client assertion."""

    pem_key: str = ""
    pem_key_file: str = ""
    key_id_header: str = ""
    key_id: str = ""
    pem_cert: str = ""
    pem_cert_file: str = ""


class OIDCClientAssertion(Value):
    """The settings by which an OIDC client authenticates with a signed token (private_key_jwt)."""

    audience: tuple[str, ...] = ()
    key_source: str = ""
    key_algorithm: str = ""
    private_key: OIDCClientAssertionKey | None = None
    extra_headers: Mapping[str, str] = no_entries()


_CONFIG_SPELLING = spelled(
    jwt_validation_pub_keys="JWTValidationPubKeys", jwks_url="JWKSURL", oidc_discovery_url="OIDCDiscoveryURL",
    oidc_client_id="OIDCClientID", oidc_client_secret="OIDCClientSecret",
    oidc_client_assertion="OIDCClientAssertion", oidc_enable_pkce="OIDCEnablePKCE",
    oidc_disable_user_info="OIDCDisableUserInfo", oidc_scopes="OIDCScopes",
    allowed_redirect_uris="AllowedRedirectURIs", jwks_ca_cert="JWKSCACert",
)  # fmt: skip


class ACLAuthMethodConfig(Value, rename=_CONFIG_SPELLING):
    """The configuration by which a login method verifies a caller's credential."""

    jwt_validation_pub_keys: tuple[str, ...] = ()
    jwks_url: str = ""
    oidc_discovery_url: str = ""
    oidc_client_id: str = ""
    oidc_client_secret: str = ""
    oidc_client_assertion: OIDCClientAssertion | None = None
    oidc_enable_pkce: bool = False
    oidc_disable_user_info: bool = False
    oidc_scopes: tuple[str, ...] = ()
    bound_audiences: tuple[str, ...] = ()
    bound_issuer: tuple[str, ...] = ()
    allowed_redirect_uris: tuple[str, ...] = ()
    discovery_ca_pem: tuple[str, ...] = ()
    jwks_ca_cert: str = ""
    signing_algs: tuple[str, ...] = ()
    expiration_leeway: Duration = Duration(0)
    not_before_leeway: Duration = Duration(0)
    clock_skew_leeway: Duration = Duration(0)
    claim_mappings: Mapping[str, str] = no_entries()
    list_claim_mappings: Mapping[str, str] = no_entries()
    verbose_logging: bool = False


class ACLAuthMethod(Value):
    """A login method; its secrets are stored only in `sealed_secrets`, and `config` shows `redacted` for them."""

    name: str = ""
    type: str = ""
    token_locality: str = ""
    token_name_format: str = ""
    max_token_ttl: Duration = Duration(0)
    default: bool = False
    config: ACLAuthMethodConfig | None = None
    key_id: Annotated[str, INTERNAL] = ""
    """The root key that decrypts `sealed_secrets`."""
    sealed_secrets: Annotated[bytes, INTERNAL] = b""
    create_time: Timestamp = 0
    modify_time: Timestamp = 0
    create_index: int = 0
    modify_index: int = 0


class ACLBindingRule(Value):
    """A rule that grants a policy, role or management rights to matching logins of a method."""

    id: str = ""
    description: str = ""
    auth_method: str = ""
    selector: str = ""
    bind_type: str = ""
    bind_name: str = ""
    create_time: Timestamp = 0
    modify_time: Timestamp = 0
    create_index: int = 0
    modify_index: int = 0


REDACTED: Final = "redacted"
"""The text that replaces a secret of a login method, as in Nomad."""


def without_method_secrets(method: ACLAuthMethod) -> ACLAuthMethod:
    """The method with its secrets redacted."""
    config = method.config
    if config is None:
        return replace(method, key_id="", sealed_secrets=b"")
    key = None if config.oidc_client_assertion is None else config.oidc_client_assertion.private_key
    masked = with_method_secrets(
        method,
        REDACTED if config.oidc_client_secret else "",
        REDACTED if key is not None and key.pem_key else "",
    )
    return replace(masked, key_id="", sealed_secrets=b"")


def with_method_secrets(method: ACLAuthMethod, client_secret: str, pem_key: str) -> ACLAuthMethod:
    """The method with these secrets in the corresponding fields of its configuration."""
    config = method.config
    if config is None:
        return method
    assertion = config.oidc_client_assertion
    if assertion is not None and assertion.private_key is not None:
        key = replace(assertion.private_key, pem_key=pem_key)
        config = replace(config, oidc_client_assertion=replace(assertion, private_key=key))
    return replace(method, config=replace(config, oidc_client_secret=client_secret))
