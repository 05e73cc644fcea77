"""Reward functions, which compare a completion with the ground truth, and their weighted sum."""

import os

if "GRPOFLOW_PLANNED_CODE" in os.environ:  # a process of a stage: it imports the user's code as planned
    from stages.rewards.planned_code import install

    install()
