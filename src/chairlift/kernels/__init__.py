"""Python face of the C++ kernels: the model on the CPU, instruction sets and thread counts."""
