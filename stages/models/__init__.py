"""The families of models: what each is called, shaped and trained with, one file per family."""
