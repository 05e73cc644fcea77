"""engine=verl: GRPO by verl (PyTorch), on Ascend NPUs or, for tests and rehearsals, on a CPU."""
