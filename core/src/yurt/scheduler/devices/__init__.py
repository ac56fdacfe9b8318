"""Devices of a node: attributes, topology, bookings, and offers for a request."""
