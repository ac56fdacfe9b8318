"""Devices of a node: attributes, topology, bookings, and what a node can offer to a request."""
