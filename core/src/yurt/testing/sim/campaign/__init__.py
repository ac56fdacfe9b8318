"""A campaign of seeds: the search, its ledger, and the coverage that steers it."""
