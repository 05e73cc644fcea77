"""Execution of a run in this process: building stages, progress display, summary and notifications."""
