"""The leader's duties: pure functions from (state, now) to commands."""
