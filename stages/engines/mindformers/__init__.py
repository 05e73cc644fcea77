"""Supervised training by mindformers: its YAML rendered, its logs read, its checkpoint brought home."""
