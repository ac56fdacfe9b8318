"""What access control stores, and what is allowed by it."""
