"""The algorithms: tables and arrays in, the same out. No I/O, no clock, no logger, no configuration object."""
