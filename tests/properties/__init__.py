"""Property tests: malformed files of every format, and a store under damage, kills and concurrent runs."""
