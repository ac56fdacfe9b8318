"""Constraints on resolved values: operators, version ranges and what `${...}` names on a node."""
