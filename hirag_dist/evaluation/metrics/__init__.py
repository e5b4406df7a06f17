"""Statistics and metrics of evaluations, as plain functions."""
