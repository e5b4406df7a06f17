"""Comparison of hirag-dist with other graph-RAG packages: one corpus, one simulated endpoint, one table.

`python -m benchmarks.peers --help` describes its use, docs/research/comparisons.md its results. The code that runs in a
peer's environment (`worker.py`, `adapters/`) imports the standard library and that peer alone.
"""
