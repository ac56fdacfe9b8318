"""NVIDIA GPUs as devices of Yurt: whole, shared or split."""
