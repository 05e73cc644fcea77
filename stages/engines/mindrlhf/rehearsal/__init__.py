"""mindrlhf on a CPU, with the model shrunk: what stands in for an Ascend card, and what it stands on."""
