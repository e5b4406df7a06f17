"""Tasks on a Ray cluster: one actor a worker, one actor that holds the treasury. The driver moves names, not rows."""

from __future__ import annotations

import logging
import os
import socket
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hirag_dist.errors import BackendUnavailable, HiragError, StageFailed
from hirag_dist.execution.task import Task, TaskResult, run_task
from hirag_dist.pool.budget import Lender
from hirag_dist.pool.treasury import Events, Loan, Order, State, Treasury, Want
from hirag_dist.stages.base import Services, asks_models

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray._private.node import Node
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

log = logging.getLogger(__name__)
_CONNECT_S = 5.0
_STARTS = 3  # Ray gives a node 30 s to start: a machine with much else to do may need more
_CLOSE_S = 30.0
_COMPUTING = 2  # tasks of a worker that compute: one runs, one is ready
_MOST_LOST_WORKERS = 100  # without one task being done
_MOST_LOSSES = 5  # a task that took so many workers with it is to blame itself
MakeServices = Callable[[Lender, str], Services]


class RayExecutor:
    """Implements `ports.Executor`. Starts a Ray of its own unless it is given an address or one is running here.

    The tasks of a worker or node that dies go to the other workers, and it takes part again once it is replaced: a
    task writes its marker last, and replies are in the ledger, so nothing is paid or counted twice.
    """

    name = "ray"

    def __init__(
        self,
        make_services: MakeServices,
        make_treasury: Callable[[], Treasury],
        *,
        workers: int | None = None,
        address: str | None = None,
        in_flight: Callable[[int], int] = lambda n_workers: 4,
        n_cpus: int | None = None,
    ) -> None:
        """Connect, and start the workers.

        Args:
            workers: None for one a CPU of the cluster.
            address: of a running cluster, `auto` for the one of this machine, None for a new one.
            in_flight: number of workers → tasks that each holds at a time where they wait for models; of others two.
            n_cpus: of a new cluster; None for this machine's.

        Raises:
            BackendUnavailable: the cluster is out of reach, or Ray does not start.
        """
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            _start(address, max(n_cpus or os.cpu_count() or 1, workers or 1))
        count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._in_flight = in_flight(count)
        name = f"treasury-{uuid.uuid4().hex}"  # workers look it up by name: a handle would tie their restart to us
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._treasury = (  # lives as we do, and is not started again: what was spent would be forgotten
            _actor(_TreasuryActor, max_restarts=0)
            .options(name=name, scheduling_strategy=here, num_cpus=0, max_concurrency=10_000)
            .remote(make_treasury)
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
        try:
            while True:
                while failure is None:
                    following = following or (lost.pop() if lost else next(waiting, None))
                    if following is None:
                        break
                    chosen = self._least_busy(load, self._in_flight if asks_models(following.stage) else _COMPUTING)
                    if chosen is None:
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
                        self._n_lost = 0
                        yield outcome
        finally:
            if running:  # the driver itself has failed: what was sent ends and is stored before that rises
                for ref in running:
                    ray.cancel(ref)
                ray.wait(list(running), num_returns=len(running))
        if failure is not None:
            raise failure

    def _least_busy(self, load: list[int], room: int) -> int | None:
        """Return a worker that is there and has room, None where there is none."""
        away = set(self._away.values())
        free = [n for n in range(len(load)) if n not in away and load[n] < room]
        return min(free, key=lambda n: (load[n], n), default=None)

    def _first_of(self, running: Mapping[Any, object]) -> list[Any]:
        try:
            done, _ = ray.wait([*running, *self._away], num_returns=1)
            return list(done)
        except KeyboardInterrupt:
            log.warning("interrupted: waiting for the replies in flight; Ctrl-C again drops them")
            raise

    def _go_away(self, worker: int, error: Exception) -> None:
        """Give a worker no tasks until it is there again: its node may never be, and the others go on."""
        if worker not in self._away.values():
            self._n_lost += 1
            if self._n_lost > _MOST_LOST_WORKERS:
                raise StageFailed(f"workers die as soon as they start: {_last_line(error)}") from error
            log.warning("a worker was lost, its tasks go to the others: %s", _last_line(error))
            self._treasury.forget.remote(worker)
            self._away[self._workers[worker].ready.options(max_task_retries=-1).remote()] = worker

    def _come_back(self, ref: Any) -> None:
        worker = self._away.pop(ref)
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError as error:
            self._go_away(worker, error)

    def charge(self, tokens: int, usd: float) -> None:
        """Count what was spent outside of tasks."""
        ray.get(self._treasury.charge.remote(tokens, usd))

    def close(self) -> None:
        """Stop the workers, and the Ray that this executor started."""
        away = set(self._away.values())
        there = [worker.close.remote() for n, worker in enumerate(self._workers) if n not in away]
        if there:
            ray.wait(there, num_returns=len(there), timeout=_CLOSE_S)
        for worker in self._workers:
            ray.kill(worker)
        ray.kill(self._treasury)
        if self._owns_ray:
            ray.shutdown()


class RemoteTreasury:
    """The cluster's one treasury, asked from a worker. Implements `pool.budget.Lender`."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def ask(self, holder: str, endpoint: str, state: State, want: Want, events: Events) -> Loan:
        """As `Treasury.ask`."""
        answer = await self._reached(self._actor.ask.remote(holder, endpoint, state, want, events))
        if isinstance(answer, HiragError):
            raise answer
        loan: Loan = answer
        return loan

    async def tell(self, holder: str, endpoint: str, state: State, events: Events) -> Order:
        """As `Treasury.tell`."""
        answer = await self._reached(self._actor.tell.remote(holder, endpoint, state, events))
        if isinstance(answer, HiragError):
            raise answer
        order: Order = answer
        return order

    async def leave(self, holder: str) -> None:
        """As `Treasury.leave`."""
        await self._reached(self._actor.leave.remote(holder))

    async def _reached(self, ref: Any) -> Any:
        try:
            return await ref
        except ray.exceptions.RayActorError as error:
            said = "the actor that holds the budget is gone; run again to go on from here"
            raise StageFailed(f"{said} ({_last_line(error)})") from error


class _TakenForDead(StageFailed):
    """This worker was taken for dead, and what it was lent has gone back."""


_TAKEN_FOR_DEAD = _TakenForDead("this worker was taken for dead")


class _TreasuryActor:
    """Holds the treasury, and knows which worker lives under which name, so that the loans of a dead one return."""

    def __init__(self, make_treasury: Callable[[], Treasury]) -> None:
        self._treasury = make_treasury()
        self._lives: dict[str, str] = {}  # worker → its present name as a holder
        self._gone: set[str] = set()

    async def ask(self, holder: str, endpoint: str, state: State, want: Want, events: Events) -> Loan | HiragError:
        if await self._is_gone(holder):
            return _TAKEN_FOR_DEAD
        try:
            return await self._treasury.ask(holder, endpoint, state, want, events)
        except HiragError as error:
            return error

    async def tell(self, holder: str, endpoint: str, state: State, events: Events) -> Order | HiragError:
        if await self._is_gone(holder):
            return _TAKEN_FOR_DEAD
        return await self._treasury.tell(holder, endpoint, state, events)

    async def leave(self, holder: str) -> None:
        await self._treasury.leave(holder)

    async def charge(self, tokens: int, usd: float) -> None:
        self._treasury.charge(tokens, usd)

    async def forget(self, worker: int) -> None:
        """Take back what a dead worker held."""
        holder = self._lives.pop(str(worker), None)
        if holder is not None:
            self._gone.add(holder)
            await self._treasury.leave(holder)

    async def _is_gone(self, holder: str) -> bool:
        """Whether a worker was taken for dead; it may not use what went back. Notes who lives."""
        if holder in self._gone:
            return True
        worker = holder.partition("/")[0]
        before = self._lives.get(worker)
        if before != holder:
            if before is not None:
                self._gone.add(before)
                await self._treasury.leave(before)
            self._lives[worker] = holder
        return False


class _Worker:
    def __init__(self, make_services: MakeServices, treasury_name: str, number: int) -> None:
        self._make_services = make_services
        self._treasury_name = treasury_name
        self._number = number
        self._services: Services | None = None

    async def ready(self) -> None:
        """Answer: this worker is there."""

    async def run(self, task: Task) -> TaskResult | HiragError:
        services: Services | None = None
        try:
            if self._services is None:  # built here: clients and device handles do not pickle
                lender = RemoteTreasury(ray.get_actor(self._treasury_name))
                self._services = self._make_services(lender, f"{self._number}/{uuid.uuid4().hex}")
            services = self._services
            return await run_task(task, services)
        except _TakenForDead:  # by mistake: it begins a new life with nothing lent
            if self._services is services:
                self._services = None
            return await self.run(task)
        except HiragError as error:
            return error

    async def close(self) -> None:
        """Let what is on its way arrive, and let go of connections."""
        if self._services is not None:
            await self._services.close()


def _actor(kind: type, max_restarts: int = -1) -> Any:
    """Return a class as an actor, started again whenever it dies by default; Ray's types cannot say what it takes."""
    return ray.remote(max_restarts=max_restarts)(kind)


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
    for more in reversed(range(1 if address else _STARTS)):
        try:
            _check_reachable(address)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.init(**options)
            return
        except Exception as error:  # Ray raises a bare Exception where a node took too long to start
            ray.shutdown()
            _kill_half_started(error)
            if more:
                continue
            where = f"the Ray cluster {address} is out of reach" if address else "Ray does not start on this machine"
            raise BackendUnavailable(f"{where}: {_last_line(error)}; `--executor inline` does without it") from error


def _kill_half_started(error: Exception) -> None:
    """End the processes of a node whose start failed: Ray itself leaves them until this process ends."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("self")
        if isinstance(node, Node):
            node.kill_all_processes(check_alive=False, allow_graceful=False)


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
