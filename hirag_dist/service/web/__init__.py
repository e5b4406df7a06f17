"""A page to ask and look at: an HTTP server for browsers that is itself a client of the gRPC service."""
