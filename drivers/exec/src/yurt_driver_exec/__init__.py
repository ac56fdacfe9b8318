"""The exec task driver."""
