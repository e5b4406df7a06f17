"""Classes of other frameworks around a service or an open index; each needs an extra of its own."""
