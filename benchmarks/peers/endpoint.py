"""The endpoint that all packages are measured against: `simulate-llm` with answers to their prompts too.

    python -m benchmarks.peers.endpoint [--listen 127.0.0.1:0] [--dim 384]

Zero latency, no limits, embeddings by `hashing`; GET /stats counts calls and tokens, by one tokenizer for all. Prints
its base URL once it takes calls, and stops on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import signal

from benchmarks.peers.answering import reply, structured
from hirag_dist.testing.simulator import Simulator, SimulatorOptions
from hirag_dist.testing.simulator.app import Endpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--dim", type=int, default=384)
    arguments = parser.parse_args()
    asyncio.run(_serve(SimulatorOptions(listen=arguments.listen, dim=arguments.dim)))


async def _serve(options: SimulatorOptions) -> None:
    stopped = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stopped.set)
    async with Simulator(options, Endpoint(options, reply=reply, structured=structured)) as simulator:
        print(simulator.base_url, flush=True)
        await stopped.wait()


if __name__ == "__main__":
    main()
