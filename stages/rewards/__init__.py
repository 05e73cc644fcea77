"""Reward functions: how good is a completion, given the ground truth?

Each `*_reward` takes (completions, solutions) and returns one number each; `score` weighs several. The
modules are imported one by one: a plan asks for the settings alone.
"""
