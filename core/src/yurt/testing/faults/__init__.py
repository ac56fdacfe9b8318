"""Faults that tests inject: damaged files, wrong clocks, swapped links, and writes while servers die."""
