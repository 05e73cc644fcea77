"""Sweeps: many points of a configuration as one graph."""
