"""Commands of `yurt operator autopilot`."""
