"""Histories of access control: policies, roles, tokens and login methods."""
