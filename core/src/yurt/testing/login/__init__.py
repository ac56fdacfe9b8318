"""Helpers for tests of logins and keys: a fake OIDC provider, an API that trusts it, and PKCS#11 tokens."""
