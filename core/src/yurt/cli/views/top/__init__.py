"""What `yurt top` shows."""
