"""One run's configuration: composed by Hydra, derived, typed, and checked against every rule."""
