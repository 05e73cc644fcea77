"""Fuzzers: hostile files for every format that is read, and a store at which everything happens at once."""
