"""Material of community reports."""
