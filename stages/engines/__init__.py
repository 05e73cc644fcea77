"""Outside programs as engines: one room each, and what they share."""
