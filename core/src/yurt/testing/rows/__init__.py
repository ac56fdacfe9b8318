"""Factories for rows of every table and for records: filled, random and recorded."""
