"""Hydra plugins: layout names without files, a sweeper, and a launcher that runs a sweep as one build.

Hydra imports these modules whenever it composes a configuration, so they import little. They do not use
`from __future__ import annotations`: Hydra executes them before they are in sys.modules, where dataclasses
look up annotations that are strings.
"""
