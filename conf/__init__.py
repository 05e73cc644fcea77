"""Hydra's groups: values, never logic."""
