"""Chat models and embedders, one file an implementation."""
