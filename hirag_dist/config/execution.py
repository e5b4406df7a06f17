"""Configuration of the engine that builds."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hirag_dist.config.base import ConfigSection, Url


class ExecutionConfig(ConfigSection):
    """Engine that builds the index; it does not change the content of the index."""

    executor: Literal["auto", "ray", "inline"] = Field(
        "auto",
        description="ray: a Ray of this machine or ray_address; inline: this process; auto: inline up to 1,024 chunks, "
        "Ray above, and where workers, gpu_workers or ray_address is set",
    )
    workers: int | None = Field(None, ge=1, description="null: one a core of the cluster")
    gpu_workers: int = Field(
        0,
        ge=0,
        description="of Ray, with a GPU each, started for what kernels compute and ended after it; the others then do "
        "all else. 0: no worker is special",
    )
    ray_address: Url | None = Field(None, description="null: a Ray of this command's own; auto: a running one")
    tasks_in_flight: int | None = Field(
        None, ge=1, description="tasks that wait for models in one worker at a time; null: as the limits of calls need"
    )

    @property
    def chosen(self) -> Literal["auto", "ray", "inline"]:
        """The executor; auto only where the size of the work decides."""
        return (
            "ray"
            if self.executor == "auto" and (self.workers or self.gpu_workers or self.ray_address)
            else self.executor
        )
