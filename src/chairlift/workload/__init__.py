"""Work and its measures: arrivals, lengths, traces, and the times of requests.

Shared by the benchmarks and the simulation, so that a measured and a simulated figure are made by
the same function. Knows no engine, no model and no clock.
"""
