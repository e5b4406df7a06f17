"""Execution of stages: keys, tasks, partitions, executors."""
