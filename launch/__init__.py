"""Where work runs: child processes, msrun, ports, and what is installed. Knows no stage and no task."""
