"""The service over HTTP: every RPC as JSON, and an OpenAI-compatible API. Both call the gRPC service as its clients."""
