"""MindSpeed-RL's programs on a CPU, as far as they go: what stands in for an NPU, and what it stands on."""
