"""Requests that another agent answers: the leader, another region, a node's agent."""
