"""GRPO post-training of Qwen2, Qwen3 and Llama in MindSpore: one file per idea, read from trainer.py."""
