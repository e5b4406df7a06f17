"""Configuration section `execution`: the engine that builds."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hirag_dist.config.base import ConfigSection, Url


class ExecutionConfig(ConfigSection):
    """Engine that builds the index; it does not change the content of the index."""

    executor: Literal["auto", "ray", "inline"] = Field(
        "auto",
        description="Engine of builds. ray: a Ray of this machine or ray_address; inline: this process; auto: inline "
        "up to 1,024 chunks, Ray above, and where workers, gpu_workers or ray_address is set",
    )
    workers: int | None = Field(None, ge=1, description="Number of workers; null: one for each core of the cluster")
    gpu_workers: int = Field(
        0,
        ge=0,
        description="Number of Ray workers with a GPU each, which run only while kernels compute; the others do the "
        "rest. 0: every worker does everything",
    )
    ray_address: Url | None = Field(
        None, description="Address of a Ray cluster; auto: a running one; null: a Ray that lives as long as the command"
    )

    @property
    def chosen(self) -> Literal["auto", "ray", "inline"]:
        """The executor; auto only where the size of the work decides."""
        return (
            "ray"
            if self.executor == "auto" and (self.workers or self.gpu_workers or self.ray_address)
            else self.executor
        )
