"""What the leader does by itself: (state, now) -> commands."""
