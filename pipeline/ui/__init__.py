"""Live views of runs: pages in a browser and a table in the terminal."""
