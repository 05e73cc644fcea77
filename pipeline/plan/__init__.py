"""What a run would do: its stages with their fingerprints, what they need, and what may go wrong."""
