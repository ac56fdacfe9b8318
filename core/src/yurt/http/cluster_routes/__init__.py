"""Routes of the servers as a whole, for operators."""
