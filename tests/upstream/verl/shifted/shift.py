"""A known difference between sampled and trained log-probabilities; imported in verl's interpreter."""

import math


def shift(token):
    """Return what sitecustomize.py adds to the log-probability of a sampled token."""
    return 0.4 * math.sin(token)
