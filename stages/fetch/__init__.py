"""Where models and datasets come from: built in, or the user's own files."""
