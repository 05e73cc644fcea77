"""Diagnosis of failed runs from their logs."""
