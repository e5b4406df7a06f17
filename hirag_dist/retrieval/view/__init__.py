"""Views of an open snapshot: all of it, or what a caller may see and a filter selects."""
