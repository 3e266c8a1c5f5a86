"""The ``chairlift`` command: one module per sub-command, nothing heavy imported before it runs."""
