"""The steps of an index build: each reads tables and writes tables, and calls models where it must."""
