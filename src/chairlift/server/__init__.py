"""The OpenAI-compatible HTTP API. Knows the engine's door and the chat template, nothing below."""
