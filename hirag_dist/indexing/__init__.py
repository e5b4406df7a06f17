"""The offline half (HiIndex): documents to a published snapshot."""
