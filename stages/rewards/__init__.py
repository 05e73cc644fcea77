"""Reward functions, which compare a completion with the ground truth, and their weighted sum."""
