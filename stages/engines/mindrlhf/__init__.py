"""The engine mindrlhf: its files rendered, its logs read, its checkpoints repaired and brought home."""
