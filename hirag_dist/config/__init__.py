"""Configuration models and their loader."""
