"""Supervised training by mindformers, and the parts that mindrlhf shares with it."""
