"""The store and the snapshot format, over pyarrow filesystems."""
