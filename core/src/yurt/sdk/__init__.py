"""The plugin API of Yurt: values, protocols, hooks and errors. Plugins import from here and from nowhere else."""
