"""One module a package, run inside that package's environment; each has a class `Adapter` (`job.Adapter`)."""
