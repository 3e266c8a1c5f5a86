"""Measuring: servers over HTTP, batching modes against each other, and the cost of steps."""
