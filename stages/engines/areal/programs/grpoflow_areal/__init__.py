"""grpoflow's part of an AReaL run, for AReaL's interpreter: driver, workflow, and the server for CPUs."""
