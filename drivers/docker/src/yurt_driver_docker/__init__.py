"""The docker task driver."""
