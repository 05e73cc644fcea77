"""Many points as one graph."""
