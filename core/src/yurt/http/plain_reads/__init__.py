"""Answers to plain reads that repeat earlier ones, and the headers that every answer has."""
