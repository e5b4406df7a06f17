"""Look-ups of single items of an open snapshot by id or name: entities, paths, communities and documents."""
