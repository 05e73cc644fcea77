"""Reward functions: how good is a completion, given the ground truth? `score` weighs several.

The modules are imported one by one: a plan asks for the settings alone.
"""
