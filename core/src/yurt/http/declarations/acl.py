"""The routes of access control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.access import needs
from yurt.http import routes
from yurt.http.routes import handlers_of

if TYPE_CHECKING:
    from yurt.http.resources.acl import auth_methods, login, policies, tokens
else:
    auth_methods = handlers_of("yurt.http.resources.acl.auth_methods")
    login = handlers_of("yurt.http.resources.acl.login")
    policies = handlers_of("yurt.http.resources.acl.policies")
    tokens = handlers_of("yurt.http.resources.acl.tokens")

OWN = needs.each_row(needs.MANAGEMENT)
"""Anyone with a valid token, or without one, may read his own; management reads all."""

ROUTES = (
    routes.get("/v1/acl/auth-methods", auth_methods.list_auth_methods, needs=needs.ANONYMOUS, from_nodes=True),
    routes.write("/v1/acl/auth-method", auth_methods.create_auth_method, needs=needs.MANAGEMENT, from_nodes=True),
    routes.get("/v1/acl/auth-method/{name}", auth_methods.read_auth_method, needs=needs.MANAGEMENT, from_nodes=True),
    routes.write(
        "/v1/acl/auth-method/{name}", auth_methods.update_auth_method, needs=needs.MANAGEMENT, from_nodes=True
    ),
    routes.delete(
        "/v1/acl/auth-method/{name}", auth_methods.delete_auth_method, needs=needs.MANAGEMENT, from_nodes=True
    ),
    routes.get("/v1/acl/binding-rules", auth_methods.list_binding_rules, needs=needs.MANAGEMENT, from_nodes=True),
    routes.write("/v1/acl/binding-rule", auth_methods.create_binding_rule, needs=needs.MANAGEMENT, from_nodes=True),
    routes.get("/v1/acl/binding-rule/{id}", auth_methods.read_binding_rule, needs=needs.MANAGEMENT, from_nodes=True),
    routes.write(
        "/v1/acl/binding-rule/{id}", auth_methods.update_binding_rule, needs=needs.MANAGEMENT, from_nodes=True
    ),
    routes.delete(
        "/v1/acl/binding-rule/{id}", auth_methods.delete_binding_rule, needs=needs.MANAGEMENT, from_nodes=True
    ),
    routes.write("/v1/acl/login", login.log_in, needs=needs.ANONYMOUS, from_nodes=True),
    routes.write("/v1/acl/oidc/auth-url", login.auth_url, needs=needs.ANONYMOUS, from_nodes=True),
    routes.write("/v1/acl/oidc/complete-auth", login.complete_auth, needs=needs.ANONYMOUS, from_nodes=True),
    routes.get("/v1/acl/policies", policies.list_policies, needs=OWN, from_nodes=True),
    routes.get("/v1/acl/policy/self", policies.own_policies, needs=needs.AUTHENTICATED, from_nodes=True),
    routes.get("/v1/acl/policy/{name}", policies.read_policy, needs=OWN, from_nodes=True),
    routes.write("/v1/acl/policy/{name}", policies.upsert_policy, needs=needs.MANAGEMENT, from_nodes=True),
    routes.delete("/v1/acl/policy/{name}", policies.delete_policy, needs=needs.MANAGEMENT, from_nodes=True),
    routes.get("/v1/acl/roles", policies.list_roles, needs=OWN, from_nodes=True),
    routes.write("/v1/acl/role", policies.create_role, needs=needs.MANAGEMENT, from_nodes=True),
    routes.get("/v1/acl/role/{id}", policies.read_role, needs=OWN, from_nodes=True),
    routes.write("/v1/acl/role/{id}", policies.update_role, needs=needs.MANAGEMENT, from_nodes=True),
    routes.delete("/v1/acl/role/{id}", policies.delete_role, needs=needs.MANAGEMENT, from_nodes=True),
    routes.get("/v1/acl/role/name/{name}", policies.read_role_by_name, needs=OWN, from_nodes=True),
    routes.write("/v1/acl/bootstrap", tokens.bootstrap, needs=needs.ANONYMOUS, from_nodes=True),
    routes.get("/v1/acl/tokens", tokens.list_tokens, needs=needs.MANAGEMENT, from_nodes=True),
    routes.write("/v1/acl/token", tokens.create_token, needs=needs.MANAGEMENT, from_nodes=True),
    routes.get("/v1/acl/token/self", tokens.own_token, needs=OWN, from_nodes=True),
    routes.write("/v1/acl/token/onetime", tokens.make_one_time, needs=needs.AUTHENTICATED, from_nodes=True),
    routes.write("/v1/acl/token/onetime/exchange", tokens.exchange_one_time, needs=needs.ANONYMOUS, from_nodes=True),
    routes.get("/v1/acl/token/{id}", tokens.read_token, needs=OWN, from_nodes=True),
    routes.write("/v1/acl/token/{id}", tokens.update_token, needs=needs.MANAGEMENT, from_nodes=True),
    routes.delete("/v1/acl/token/{id}", tokens.delete_token, needs=needs.MANAGEMENT, from_nodes=True),
)
