"""Rehearsals of mindformers, and of mindrlhf on it, on a CPU: replacements of what only Ascend cards have."""
