"""Turns the verified claims of a login into a token: claim checks, claim mappings, binding rules, minting.

    signed token --verified by a shell--> claims --`checks`--> CheckedClaims --`claims`--> MappedClaims
    MappedClaims + binding rules --`binding`--> Bound --`minting`--> ACLToken

Nothing here checks a signature or asks a provider. Only `checks` makes CheckedClaims, and `minting` takes nothing else,
so that no path leads around the audience, issuer and times. Every doubt ends a login: a claim that cannot be read, a
bind name that is not a valid name, no rule that binds. A selector that fails binds nothing.
"""
