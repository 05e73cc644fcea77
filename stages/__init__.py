"""What each stage of the pipeline does, as plain functions of a config and directories.

A stage knows the field (weights, tokens, rewards, gradients) and nothing of Luigi, Hydra or
machines. It runs in a child process of its own: `python -m stages NAME spec.json`.
"""
