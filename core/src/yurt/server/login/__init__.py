"""Logins: what a caller shows is checked with the keys of its issuer, and becomes a token by binding rules.

    JWT:  token --`key_sets`: keys of the issuer--> claims --`yurt.acl.login`--> token
    OIDC: auth-url --browser, provider--> code --`exchange`--> ID token --as above--> token

Only `fetching` sends requests to providers, on the leading server, outside its log. `apply` decides the rights of a
login, under the condition that the method, the rules and what they grant have not changed meanwhile.
Answers of providers are hostile input: they have limits of size and time, lead nowhere by redirect, and name only
addresses that the operator's own address allows.
"""
