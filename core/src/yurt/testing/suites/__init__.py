"""Conformance suites for the parts of a package, one module for each kind."""
