"""What maintainers run: execute and normalise notebooks, export kernels, record times."""
