"""Rows for every table and record: filled, random and recorded ones."""
