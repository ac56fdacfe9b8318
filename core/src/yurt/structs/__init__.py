"""Domain values, plans and commands as frozen structs; their methods only answer questions about themselves."""
