"""Options of a simulated endpoint."""

from __future__ import annotations

from dataclasses import dataclass

from hirag_dist.errors import ConfigError

FAULT_RATES = ("fail_rate", "hang_rate", "malformed_rate", "truncate_rate")  # exclude each other


@dataclass(frozen=True, slots=True)
class SimulatorOptions:
    """Address, latency, limits and faults of the endpoint.

    Attributes:
        listen: host:port; port 0 takes a free one.
        latency_ms: mean time that a reply takes; the model's own work counts as part of it.
        jitter: 0 to 1; share of latency_ms by which a call may take more or less, drawn by (seed, request, attempt).
        rpm: requests a minute over both kinds of call, or None for no limit.
        tpm: tokens a minute, in and out, or None.
        burst_s: how many seconds of a limit a rested endpoint grants at once (OpenAI: a minute's).
        max_concurrent: calls at a time, or None.
        limit_headers: whether replies tell the limits (x-ratelimit-*, Retry-After) or callers have to find them.
        fail_rate: share of calls that get a 500, 502, 503 or 529.
        malformed_rate: share of chat replies whose text is damaged as real models do it.
        truncate_rate: share of chat replies that are cut, with finish_reason "length".
        hang_rate: share of calls that are not answered until the caller goes.
        seed: Seed of all random draws and of the vectors.
        dim: size of the vectors.

    Raises:
        ConfigError: a value is out of its range.
    """

    listen: str = "127.0.0.1:8000"
    latency_ms: float = 0.0
    jitter: float = 0.0
    rpm: float | None = None
    tpm: float | None = None
    burst_s: float = 60.0
    max_concurrent: int | None = None
    limit_headers: bool = True
    fail_rate: float = 0.0
    malformed_rate: float = 0.0
    truncate_rate: float = 0.0
    hang_rate: float = 0.0
    seed: int = 0
    dim: int = 384

    def __post_init__(self) -> None:
        if self.latency_ms < 0 or not 0 <= self.jitter <= 1:
            raise ConfigError("simulate-llm: latency_ms must be at least 0 and jitter from 0 to 1")
        limits = {"rpm": self.rpm, "tpm": self.tpm, "max_concurrent": self.max_concurrent, "burst_s": self.burst_s}
        for name, value in limits.items():
            if value is not None and value <= 0:
                raise ConfigError(f"simulate-llm: {name} must be above 0, got {value:g}")
        for name in FAULT_RATES:
            rate = getattr(self, name)
            if not 0 <= rate <= 1:
                raise ConfigError(f"simulate-llm: {name} is a share from 0 to 1, got {rate:g}")
        if sum(getattr(self, name) for name in FAULT_RATES) > 1 + 1e-9:
            raise ConfigError(
                f"simulate-llm: a call gets one fault at most, so {', '.join(FAULT_RATES)} together must not pass 1"
            )
        self.address()

    def address(self) -> tuple[str, int]:
        """Return (host, port). Raises ConfigError when `listen` is no host:port."""
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(f"simulate-llm: listen must be host:port, got {self.listen!r}")
        return host.strip("[]"), int(port)
