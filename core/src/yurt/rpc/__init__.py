"""The transport between agents: method table, codec and the gRPC adapter."""
