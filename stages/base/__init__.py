"""Errors, typed reading, rules, identity, layouts, and the declarations of stages and engines."""
