"""Model files: reading them, finding them, fetching them. Nothing here computes a forward pass."""
