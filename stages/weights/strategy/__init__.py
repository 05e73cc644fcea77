"""MindSpore strategy files: how each parameter lies on the cards, without MindSpore and without cards."""
