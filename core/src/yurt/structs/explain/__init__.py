"""Explanations: placement metrics, obstacles of a group and their remedies, differences of job versions."""
