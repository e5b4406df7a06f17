"""What stands behind the ports: one file per outside thing."""
