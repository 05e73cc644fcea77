"""The earlier version cannot remove padding."""
