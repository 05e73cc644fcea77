"""Hydra plugin: layout names without files. Hydra imports it whenever it composes a configuration."""
