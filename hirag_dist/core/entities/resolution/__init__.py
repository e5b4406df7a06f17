"""Entity resolution: names that mean one entity."""
