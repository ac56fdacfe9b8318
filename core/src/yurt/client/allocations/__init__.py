"""Allocations on this node: assignment, runners, reports to the servers, removal, garbage collection."""
