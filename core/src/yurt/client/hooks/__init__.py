"""The hooks of a client: Yurt's own, each an adapter to the package of its concern, and the code that calls hooks."""
