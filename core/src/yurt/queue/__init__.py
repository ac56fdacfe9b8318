"""The order of waiting jobs: fair share of decayed usage, reservations, backfill, and the expected start.

Pure functions of what they are given and of the time; nothing here knows of evaluations, servers or the log.
"""
