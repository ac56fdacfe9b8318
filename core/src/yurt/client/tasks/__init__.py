"""Tasks of an allocation: runners, setup before a start, environment, identities, sessions."""
