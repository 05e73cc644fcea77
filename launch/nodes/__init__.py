"""Several machines: start scripts, ssh, Slurm."""
