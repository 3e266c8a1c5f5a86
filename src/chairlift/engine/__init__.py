"""The loop and its doors: from a validated request to pieces of its answer."""
