"""Resources of a machine, and checks of an engine's requirements."""
