"""Kinds of evaluations: one module each, and the reports of the larger ones."""
