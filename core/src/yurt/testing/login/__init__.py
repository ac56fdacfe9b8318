"""Tests of logins and keys: a provider that may lie, an API that trusts it, and tokens of SoftHSM."""
