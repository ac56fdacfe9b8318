"""Commands on variables."""
