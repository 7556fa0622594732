"""The shelf: kernels exported from the lessons by `make shelf`, one module per topic."""
