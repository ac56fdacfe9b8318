"""Root keys, and what they sign and encrypt: tokens, identities, variables."""
