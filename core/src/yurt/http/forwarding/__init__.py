"""Forwarding of requests to the leader, to another region, or to a node's agent."""
