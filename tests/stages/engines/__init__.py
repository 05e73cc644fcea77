"""Tests of the outside engines."""
