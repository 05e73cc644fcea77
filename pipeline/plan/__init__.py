"""Plans of runs: stages with their fingerprints, checks of their requirements, and warnings."""
