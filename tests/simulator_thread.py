"""A simulated endpoint in a thread of its own, for tests without an event loop."""

from __future__ import annotations

from typing import Any

from hirag_dist._loop_thread import LoopThread
from hirag_dist.errors import BackendUnavailable
from hirag_dist.testing.simulator import Simulator, SimulatorOptions


class SimulatorThread:
    """A context manager that serves from a thread with a loop of its own, for callers without one.

    Entering gives the base URL; raises BackendUnavailable when the address cannot be listened on.
    """

    def __init__(self, options: SimulatorOptions) -> None:
        self._simulator = Simulator(options)
        self._thread = LoopThread("simulate-llm", lambda: BackendUnavailable("the simulated endpoint is closed"))

    def __enter__(self) -> str:
        try:
            self._thread.run(self._simulator.__aenter__())
        except BaseException:
            self._thread.close()
            raise
        return self._simulator.base_url

    def __exit__(self, *error: Any) -> None:
        try:
            self._thread.run(self._simulator.__aexit__(*error))
        finally:
            self._thread.close()

    def stats(self) -> dict[str, Any]:
        """Return the counts so far, as GET /stats gives them: every reply that has come is in them."""
        return self._thread.run(self._stats()) if self._thread.running else self._simulator.endpoint.stats()

    async def _stats(self) -> dict[str, Any]:
        return self._simulator.endpoint.stats()
