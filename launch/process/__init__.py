"""One child process, and workers under msrun."""
