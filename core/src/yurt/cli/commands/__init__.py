"""The commands, by noun: what `yurt <noun> ...` does is in the module or the package of that name."""
