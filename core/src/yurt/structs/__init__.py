"""Domain values, plans and commands: frozen structs, no behaviour beyond questions about themselves."""
