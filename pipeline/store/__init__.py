"""The artifacts, the attempts at them and the history of runs: the only room that knows a store's files."""
