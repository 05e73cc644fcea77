"""Processes on this machine: a child, and workers under msrun."""
