"""Files and logs of allocations as users read them."""
