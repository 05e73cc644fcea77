"""mindformers on a CPU, and mindrlhf on it: what stands in for an Ascend card, and what it stands on."""
