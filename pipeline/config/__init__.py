"""Configuration of one run: composed by Hydra, derived, typed, and checked against all rules."""
