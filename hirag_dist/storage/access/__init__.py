"""Access labels in the snapshot: writing, reading and filtered views."""
