"""The online half (HiRetrieval): questions over an open snapshot."""
