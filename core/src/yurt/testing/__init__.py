"""Factories, fakes and conformance suites; nothing shipped imports it."""
