"""Access to the HTTP API of an agent: the client, look-up by id prefix, pages, file frames."""
