"""One run in this process: built stage by stage, shown and told."""
