"""Text to token ids: the tokenizer, the MindRecord files, and reading them back."""
