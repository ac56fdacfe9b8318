"""Faults that tests inject: damaged files, wrong clocks, exchanged links, writes during server deaths."""
