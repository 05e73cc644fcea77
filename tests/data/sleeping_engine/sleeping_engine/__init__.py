"""Engine whose stages sleep, and write into a journal when they begin and end: for tests of who runs what."""
