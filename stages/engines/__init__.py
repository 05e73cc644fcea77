"""Outside programs as engines: one room each, and beside them what they share."""
