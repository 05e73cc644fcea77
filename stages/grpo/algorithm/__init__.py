"""What the published algorithms add to each other, one file each with its paper."""
