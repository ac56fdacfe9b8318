"""JSON to structs and back, filters, pages of lists."""
