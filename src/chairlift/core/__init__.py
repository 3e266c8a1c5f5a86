"""Who runs when: scheduler and paged KV bookkeeping. Pure Python, no I/O, no clock of its own."""
