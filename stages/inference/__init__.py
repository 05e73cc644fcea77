"""Answers of trained models by an inference program in an environment of its own."""
