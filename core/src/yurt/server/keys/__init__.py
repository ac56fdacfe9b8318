"""Root keys, and the tokens, identities and variables that they sign and encrypt."""
