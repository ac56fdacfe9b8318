"""`yurt acl`: bootstrap access control, and change policies, tokens, roles, login methods and binding rules."""

from __future__ import annotations

MODULES = {
    "auth_method": ("auth-method",),
    "binding_rule": ("binding-rule",),
    "explain": ("explain",),
    "lint": ("lint",),
    "policy": ("policy",),
    "suggest": ("policy",),
    "role": ("role",),
    "token": (
        "bootstrap",
        "token",
    ),
}
"""Which module has the commands of which second words."""
GROUPS = {
    "acl auth-method": "Show and change the methods by which users log in",
    "acl binding-rule": "Show and change what a login grants",
    "acl policy": "Show and change policies",
    "acl role": "Show and change roles, which are named sets of policies",
    "acl token": "Show, create, change and revoke tokens",
}
