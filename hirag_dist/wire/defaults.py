"""Defaults that server and client share."""

DEFAULT_LISTEN = "127.0.0.1:50051"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
