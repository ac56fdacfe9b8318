"""What allocations used: records that outlive them."""
