"""Smallest complete engine: its program writes a file of weights and a metric for each step."""
