"""Export of a trained model as a Hugging Face directory that other programs use as training did."""
