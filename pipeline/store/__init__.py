"""The artifact store: artifacts, build attempts, the history of runs, and their paths."""
