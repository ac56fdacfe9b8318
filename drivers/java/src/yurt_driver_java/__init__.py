"""The java task driver."""
