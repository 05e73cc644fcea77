"""Models and datasets: generated, downloaded, or taken from the user's files."""
