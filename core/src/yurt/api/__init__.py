"""JSON to structs and back, canonical defaults, validation, the HTTP client."""
