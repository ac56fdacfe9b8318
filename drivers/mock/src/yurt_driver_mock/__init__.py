"""The mock task driver."""
