"""Stages of an index build: each reads tables and writes tables; some call models."""
