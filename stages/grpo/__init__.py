"""GRPO post-training of Qwen2 in MindSpore: one file per idea, read from trainer.py."""
