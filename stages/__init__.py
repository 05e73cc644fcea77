"""Stages of the pipeline as plain functions of a configuration and directories.

They do not depend on Luigi, Hydra or machines. Each runs in a child process (`stages.__main__`).
"""
