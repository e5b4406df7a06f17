"""Numerical kernels: NumPy on the CPU, CuPy and cuGraph on a GPU."""
