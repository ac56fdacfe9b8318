"""Tasks of an allocation: runners, what is set up before a start, environment, identities, sessions."""
