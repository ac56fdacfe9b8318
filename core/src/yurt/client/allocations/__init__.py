"""Allocations on this node: runners, records of ended ones, directories, reports, removal."""
