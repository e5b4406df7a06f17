"""Configuration to objects: endpoints, pools, executors, kernels and query engines."""
