"""What all stages stand on: errors, typed reading, identity, layouts, and what graph and engines are."""
