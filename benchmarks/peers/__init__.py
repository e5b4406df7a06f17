"""hirag-dist beside other graph-RAG packages: one corpus, one simulated endpoint, one table.

`python -m benchmarks.peers --help` says how to run it, docs/peers.md what it shows. What runs inside a peer's
environment (`worker.py`, `adapters/`) imports the standard library and that peer alone.
"""
