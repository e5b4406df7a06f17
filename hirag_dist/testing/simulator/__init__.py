"""An OpenAI-compatible endpoint on this machine, answered by the built-in model: for tests, rehearsals, benchmarks.

The model's CPU work is done in the event loop, one call at a time: it has one core whatever the concurrency, and is
part of a call's `latency_ms` as long as it is shorter. A request that was answered before costs no such work again.
`max_tokens` is accepted and not applied, so that an undisturbed reply is byte for byte the one that the model gives in
process. What goes wrong, and when, is drawn by seed: a rehearsal repeats.
"""

from hirag_dist.testing.simulator.app import Simulator, run_simulator
from hirag_dist.testing.simulator.options import SimulatorOptions

__all__ = ["Simulator", "SimulatorOptions", "run_simulator"]
