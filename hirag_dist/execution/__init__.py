"""Execution of stages: keys, tasks, partitions, executors, batches of calls."""
