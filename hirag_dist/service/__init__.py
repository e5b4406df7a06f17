"""The gRPC service around `query.py`. Import from the modules: this package stays light for the client's sake."""
