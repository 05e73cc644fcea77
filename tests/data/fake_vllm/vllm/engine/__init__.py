"""Arguments of vLLM."""
