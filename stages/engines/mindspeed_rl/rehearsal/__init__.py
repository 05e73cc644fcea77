"""Rehearsal of MindSpeed-RL on a CPU: small recipes, replaced packages, and validation by its own code."""
