"""A callers file that is deleted while the service runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hirag_dist.client import AsyncHiragClient, Unauthenticated
from tests.service import fakes


async def test_a_deleted_callers_file_refuses_all_callers_until_it_is_back(
    start: fakes.Start, engine: fakes.FakeEngine, callers: fakes.CallersFile
) -> None:
    service = await start(engine, callers_file=callers.path, callers_grace_s=0.2, poll_s=0.05)
    async with AsyncHiragClient(service.address, token="web-token") as client, asyncio.timeout(60):
        assert not await _is_refused(client)
        Path(callers.path).unlink()
        while not await _is_refused(client):
            await asyncio.sleep(0.02)
        callers.write()
        while await _is_refused(client):
            await asyncio.sleep(0.02)


async def _is_refused(client: AsyncHiragClient) -> bool:
    try:
        await client.describe()
    except Unauthenticated:
        return True
    return False
