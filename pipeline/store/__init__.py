"""The artifacts, the attempts at them and the history of runs, and where each of them lies."""
