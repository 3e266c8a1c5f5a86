"""How a step executes: the plan becomes a flat batch, the batch logits, and logits tokens."""
