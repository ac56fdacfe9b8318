"""The makers of the reference pages: one module a page, `markdown` for what they share, `*_notes` for their words."""
