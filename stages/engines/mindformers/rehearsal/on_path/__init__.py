"""A directory for PYTHONPATH, not a package: `sitecustomize` is what Python imports from it at its start."""
