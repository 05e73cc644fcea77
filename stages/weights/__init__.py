"""Weights on disk: safetensors, names, and moving slices between layouts, streaming and bit-exact."""
