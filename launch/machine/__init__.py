"""What a machine has, and whether an engine could run on it."""
