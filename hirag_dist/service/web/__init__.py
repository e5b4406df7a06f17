"""The browser page for questions: an HTTP server that is a client of the gRPC service."""
