"""Tasks on a Ray cluster: one actor a worker, one actor that holds the budget. The driver moves names, not rows."""

from __future__ import annotations

import logging
import os
import socket
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hirag_dist.errors import BackendUnavailable, HiragError, StageFailed
from hirag_dist.execution.task import Task, TaskResult, run_task
from hirag_dist.pool.budget import Budget, LocalBudget
from hirag_dist.stages.base import Services

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

log = logging.getLogger(__name__)
_CONNECT_S = 5.0
_MOST_LOST_WORKERS = 100  # in one build
_MOST_LOSSES = 5  # a task that took so many workers with it is to blame itself
MakeServices = Callable[[Budget], Services]


class RayExecutor:
    """Implements `ports.Executor`. Starts a Ray of its own unless it is given an address or one is running here.

    The tasks of a worker or node that dies go to the other workers, and it takes part again once it is replaced: a
    task writes its marker last, and replies are in the ledger, so nothing is paid or counted twice.
    """

    name = "ray"

    def __init__(
        self,
        make_services: MakeServices,
        make_budget: Callable[[], LocalBudget],
        *,
        workers: int | None = None,
        address: str | None = None,
        in_flight: int = 4,
        n_cpus: int | None = None,
    ) -> None:
        """Connect, and start the workers.

        Args:
            workers: None for one a CPU of the cluster.
            address: of a running cluster, `auto` for the one of this machine, None for a new one.
            in_flight: tasks that one worker holds at a time.
            n_cpus: of a new cluster; None for this machine's.

        Raises:
            BackendUnavailable: the cluster is out of reach, or Ray does not start.
        """
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            _start(address, max(n_cpus or os.cpu_count() or 1, workers or 1))
        self._in_flight = in_flight
        count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        name = f"budget-{uuid.uuid4().hex}"  # workers look it up by name: a handle would tie their restart to us
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._budget = (  # lives as we do
            _actor(_BudgetActor)
            .options(name=name, scheduling_strategy=here, num_cpus=0, max_task_retries=-1, max_concurrency=10_000)
            .remote(make_budget)
        )
        worker = _actor(_Worker).options(num_cpus=1)
        self._workers = [worker.remote(make_services, name, n) for n in range(count)]
        self._n_lost = 0
        # A call that ends when the worker is there → the worker. A busy cluster may have no room for some yet.
        self._away: dict[Any, int] = {
            each.ready.options(max_task_retries=-1).remote(): n for n, each in enumerate(self._workers)
        }

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """Run tasks on the least busy workers, yield results as they come.

        Raises:
            HiragError: a task failed; the others in flight have finished and are stored.
            KeyboardInterrupt: requests that were sent have ended and are stored.
        """
        waiting = iter(tasks)
        lost: list[Task] = []  # with the worker that had them
        losses: dict[int, int] = {}
        running: dict[Any, tuple[int, Task]] = {}
        load = [0] * len(self._workers)
        failure: HiragError | None = None
        following: Task | None = None
        while True:
            while failure is None:
                following = following or (lost.pop() if lost else next(waiting, None))
                chosen = self._least_busy(load)
                if following is None or chosen is None:
                    break
                running[self._workers[chosen].run.remote(following)] = chosen, following
                load[chosen] += 1
                following = None
            if not running and (following is None or failure is not None):
                break
            for ref in self._first_of(running):
                if ref in self._away:
                    self._come_back(ref)
                    continue
                chosen, task = running.pop(ref)
                load[chosen] -= 1
                try:
                    outcome = ray.get(ref)
                except ray.exceptions.RayActorError as error:
                    self._go_away(chosen, error)
                    losses[task.number] = losses.get(task.number, 0) + 1
                    if losses[task.number] < _MOST_LOSSES:
                        lost.append(task)
                        continue
                    outcome = StageFailed(f"{_MOST_LOSSES} workers died over the same task: {_last_line(error)}")
                except ray.exceptions.RayError as error:
                    outcome = StageFailed(f"a worker failed: {_last_line(error)}")
                if isinstance(outcome, HiragError):
                    failure = failure or outcome
                elif failure is None:
                    yield outcome
        if failure is not None:
            raise failure

    def _least_busy(self, load: list[int]) -> int | None:
        """Return a worker that is there and has room, None where there is none."""
        away = set(self._away.values())
        free = [n for n in range(len(load)) if n not in away and load[n] < self._in_flight]
        return min(free, key=lambda n: (load[n], n), default=None)

    def _first_of(self, running: Mapping[Any, object]) -> list[Any]:
        try:
            done, _ = ray.wait([*running, *self._away], num_returns=1)
            return list(done)
        except KeyboardInterrupt:
            log.warning("interrupted: waiting for the replies in flight; Ctrl-C again drops them")
            for ref in running:
                ray.cancel(ref)
            if running:
                ray.wait(list(running), num_returns=len(running))
            raise

    def _go_away(self, worker: int, error: Exception) -> None:
        """Give a worker no tasks until it is there again: its node may never be, and the others go on."""
        if worker not in self._away.values():
            self._n_lost += 1
            if self._n_lost > _MOST_LOST_WORKERS:
                raise StageFailed(f"workers die as soon as they start: {_last_line(error)}") from error
            log.warning("a worker was lost, its tasks go to the others: %s", _last_line(error))
            self._budget.forget.remote(worker)
            self._away[self._workers[worker].ready.options(max_task_retries=-1).remote()] = worker

    def _come_back(self, ref: Any) -> None:
        worker = self._away.pop(ref)
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError as error:
            self._go_away(worker, error)

    def close(self) -> None:
        """Stop the workers, and the Ray that this executor started."""
        for worker in self._workers:
            ray.kill(worker)
        ray.kill(self._budget)
        if self._owns_ray:
            ray.shutdown()


class RemoteBudget:
    """The cluster's one budget, asked from a worker. Implements `pool.budget.Budget`."""

    def __init__(self, actor: Any, worker: int) -> None:
        self._actor = actor
        self._holder = worker, uuid.uuid4().hex  # a worker that was started again holds none of its earlier permits

    async def acquire(self, endpoint: str, tokens: int, cost_usd: float) -> None:
        """Wait for this call's turn."""
        refusal = await self._actor.acquire.remote(self._holder, endpoint, tokens, cost_usd)
        if refusal is not None:
            raise refusal

    async def settle(self, endpoint: str, reserved: int, used: int, reserved_usd: float, used_usd: float) -> None:
        """The call has ended."""
        await self._actor.settle.remote(self._holder, endpoint, reserved, used, reserved_usd, used_usd)

    async def pause(self, endpoint: str, seconds: float) -> None:
        """The endpoint asked to be left alone for a while."""
        await self._actor.pause.remote(endpoint, seconds)


class _BudgetActor:
    """Holds the budget, and knows which worker holds which permits, so that those of a dead one return."""

    def __init__(self, make_budget: Callable[[], LocalBudget]) -> None:
        self._budget = make_budget()
        self._lives: dict[int, str] = {}  # worker → its present life
        self._held: dict[int, list[tuple[str, int, float]]] = {}

    async def acquire(self, holder: tuple[int, str], endpoint: str, tokens: int, cost_usd: float) -> HiragError | None:
        worker, life = holder
        if self._lives.get(worker) != life:
            await self.forget(worker)
            self._lives[worker] = life
        try:
            await self._budget.acquire(endpoint, tokens, cost_usd)
        except HiragError as error:
            return error
        if self._lives.get(worker) != life:  # it died while it waited
            await self._budget.settle(endpoint, tokens, 0, cost_usd, 0.0)
        else:
            self._held.setdefault(worker, []).append((endpoint, tokens, cost_usd))
        return None

    async def settle(
        self, holder: tuple[int, str], endpoint: str, reserved: int, used: int, reserved_usd: float, used_usd: float
    ) -> None:
        worker, life = holder
        permit = endpoint, reserved, reserved_usd
        if self._lives.get(worker) == life and permit in self._held.get(worker, ()):
            self._held[worker].remove(permit)
            await self._budget.settle(endpoint, reserved, used, reserved_usd, used_usd)

    async def forget(self, worker: int) -> None:
        """Return the permits of a worker that died; what it was charged for stays charged."""
        self._lives.pop(worker, None)
        for endpoint, reserved, reserved_usd in self._held.pop(worker, []):
            await self._budget.settle(endpoint, reserved, reserved, reserved_usd, reserved_usd)

    async def pause(self, endpoint: str, seconds: float) -> None:
        await self._budget.pause(endpoint, seconds)


class _Worker:
    def __init__(self, make_services: MakeServices, budget_name: str, number: int) -> None:
        self._make_services = make_services
        self._budget_name = budget_name
        self._number = number
        self._services: Services | None = None

    async def ready(self) -> None:
        """Answer: this worker is there."""

    async def run(self, task: Task) -> TaskResult | HiragError:
        try:
            if self._services is None:  # built here: clients and device handles do not pickle
                self._services = self._make_services(RemoteBudget(ray.get_actor(self._budget_name), self._number))
            return await run_task(task, self._services)
        except HiragError as error:
            return error


def _actor(kind: type) -> Any:
    """Return a class as an actor that is started again whenever it dies; Ray's own types cannot say what it takes."""
    return ray.remote(max_restarts=-1)(kind)


def _start(address: str | None, n_cpus: int | None) -> None:
    options: dict[str, Any] = {
        "address": "local",  # one of our own: another's on this machine may run other code
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "include_dashboard": False,
        "configure_logging": False,
    }
    if address is not None:
        options = {"address": address, "logging_level": logging.ERROR, "log_to_driver": False}
    elif n_cpus is not None:
        options["num_cpus"] = n_cpus
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        _check_reachable(address)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        where = f"the Ray cluster {address} is out of reach" if address else "Ray does not start on this machine"
        raise BackendUnavailable(f"{where}: {_last_line(error)}; `--executor inline` does without it") from error


def _check_reachable(address: str | None) -> None:
    """Raise OSError where nobody listens at HOST:PORT: Ray itself tries for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


def describe_cluster(address: str | None) -> str:
    """Return what a cluster has, starting one for the question where there is no address.

    Raises:
        BackendUnavailable: it is out of reach, or Ray does not start.
    """
    owns = not ray.is_initialized()
    if owns:
        _start(address, None)
    try:
        found = ray.cluster_resources()
        nodes = sum(bool(node["Alive"]) for node in ray.nodes())
        return f"{ray.__version__}, {nodes} node(s), {found.get('CPU', 0):g} CPUs, {found.get('GPU', 0):g} GPUs"
    finally:
        if owns:
            ray.shutdown()


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
