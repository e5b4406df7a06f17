"""Protocol buffers and errors that server and client share."""
