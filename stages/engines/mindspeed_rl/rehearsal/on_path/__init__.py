"""On PYTHONPATH of a rehearsal's processes; nothing else is put there."""
