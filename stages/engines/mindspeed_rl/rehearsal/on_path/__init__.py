"""Directory on PYTHONPATH of a rehearsal's processes; it contains nothing else."""
