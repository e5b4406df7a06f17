"""Implementation of the public Python API. Import the names from `hirag_dist`."""
