"""Processes, nodes, checks of machines and diagnosis of failures; independent of stages and tasks."""
