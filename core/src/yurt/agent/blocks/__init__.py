"""Blocks of the configuration file, one module each: the settings, and the errors of a block as written."""
