"""Upload of documents on the web page: files, plan, update of the index, result."""
