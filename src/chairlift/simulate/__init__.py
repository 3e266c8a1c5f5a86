"""The product's own Scheduler without a model: drawn step by step, or run on a virtual clock.

Nothing here decides who runs; only the runner and the clock are replaced.
"""
