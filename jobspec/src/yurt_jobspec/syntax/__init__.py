"""Parses text to syntax trees: tokens, expressions, templates, bodies, and the JSON form of the language."""
