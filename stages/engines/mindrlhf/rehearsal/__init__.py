"""Rehearsal of mindrlhf on a CPU: the small recipe, known answers, and proofs."""
