"""Constraints on resolved values: operators, version ranges, and the targets that `${...}` names on a node."""
