"""The commands, by noun: `yurt <noun> ...` is declared in the module or the package of that name."""
