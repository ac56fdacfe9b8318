"""Blocks of the configuration file, one module each: their settings, and what is wrong with what was written."""
