"""Where and whether a stage runs."""
