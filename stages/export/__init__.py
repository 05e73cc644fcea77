"""What leaves the store: a Hugging Face directory that answers elsewhere as it did in training."""
