"""Tools for tests and rehearsals."""
