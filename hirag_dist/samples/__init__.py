"""Sample corpus and questions of the demo; SOURCES.md names their origins."""
