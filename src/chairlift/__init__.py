"""Chairlift: LLM inference with continuous batching."""
