"""Applies commands to the state; one module per resource."""
