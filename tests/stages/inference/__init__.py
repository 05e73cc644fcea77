"""Tests of stages/inference."""
