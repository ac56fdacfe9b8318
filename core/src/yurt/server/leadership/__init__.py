"""Leadership, the parts that run only on the leader, and calls between servers."""
