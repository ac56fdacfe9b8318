"""The raw_exec task driver."""
