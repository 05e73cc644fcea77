"""Runs on one or several machines: start scripts, ssh, Slurm and Ray."""
