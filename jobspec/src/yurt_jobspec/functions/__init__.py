"""The functions of the language, one module for each family; `registry` loads a family at its first call."""
