"""Logins: what a caller shows is checked with the keys of its issuer, and becomes a token by binding rules.

    JWT:  token --`key_sets`: keys of the issuer--> claims --`yurt.acl.login`--> token
    OIDC: auth-url --browser, provider--> code --`exchange`--> ID token --as above--> token

Providers are asked through `fetching` alone, by the server that leads, beside its log: what a login is worth is decided
in `apply`, under the condition that the method, the rules and what they grant are still those on which it was decided.
What a provider answers counts as hostile: bounds of size and time, no redirects, no address that the operator's own
would not allow.
"""
