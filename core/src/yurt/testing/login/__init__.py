"""Tests of logins: a provider that may lie, and an API that trusts it."""
