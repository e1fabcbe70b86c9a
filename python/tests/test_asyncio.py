"""Asynchronous calls."""

import asyncio

import pytest

import ringdb


@pytest.fixture
def cold(path):
    """A store whose values have to be read: past the page cache, and larger than its own."""
    with ringdb.open(path, cache_bytes="2 MiB", memtable_bytes="1 MiB", direct_reads=True) as db:
        for i in range(20_000):
            db[b"%05d" % i] = b"%05d" % i * 100
        db.flush()
        yield db


def test_reads_of_many_tasks(cold):
    async def main():
        values = await asyncio.gather(*(cold.aget(b"%05d" % i) for i in range(0, 20_000, 7)))
        assert values == [b"%05d" % i * 100 for i in range(0, 20_000, 7)]
        assert await cold.aget(b"x") is None and await cold.aget(b"x", b"-") == b"-"
        assert await cold.amulti_get([b"00001", b"x"]) == [b"00001" * 100, None]

    asyncio.run(main())
    # A second loop has a driver of its own.
    asyncio.run(main())


def test_ranges(cold):
    async def main():
        seen = [key async for key, _ in cold.aitems(start=b"00100", stop=b"01100")]
        assert seen == [b"%05d" % i for i in range(100, 1100)]
        assert [k async for k, _ in cold.aitems(prefix=b"0123")] == [b"%05d" % i for i in range(1230, 1240)]
        assert [k async for k, _ in cold.aitems(prefix=b"x")] == []

    asyncio.run(main())


def test_writes(db):
    async def main():
        await asyncio.gather(*(db.aput(b"%03d" % i, b"x", durability="sync") for i in range(200)))
        await db.adelete(b"000")
        async with db.batch(durability="sync") as batch:
            batch[b"a"] = b"1"
        with pytest.raises(ZeroDivisionError):
            async with db.batch() as batch:
                batch[b"b"] = b"1"
                1 / 0
        batch = db.batch()
        batch[b"c"] = b"1"
        await batch.awrite()
        users = db.keyspace("users")
        await users.aput(b"a", b"2")
        assert await users.aget(b"a") == b"2"
        await db.async_sync()

    asyncio.run(main())
    assert len(list(db)) == 201 and b"a" in db and b"b" not in db and b"c" in db


def test_errors(db):
    async def main():
        with pytest.raises(ringdb.InvalidError):
            await db.aput(bytes(70_000), b"")
        with pytest.raises(ringdb.InvalidError):
            await db.aget(b"a", timeout=-1)
        await db.aget(b"a", timeout=5)

    asyncio.run(main())
    with pytest.raises(RuntimeError, match="no running event loop"):
        db.aget(b"a")
    db.close()

    async def closed():
        with pytest.raises(ringdb.ClosedError):
            await db.aget(b"a")

    asyncio.run(closed())


def test_cancelled_calls_leave_nothing(cold):
    from ringdb import _asyncio

    async def main():
        for _ in range(20):
            tasks = [cold.aget(b"%05d" % i) for i in range(0, 20_000, 50)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            for i, value in enumerate(done):
                assert isinstance(value, asyncio.CancelledError) or value == b"%05d" % (i * 50) * 100
        assert await cold.aget(b"00001") == b"00001" * 100
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        assert _asyncio._drivers[asyncio.get_running_loop()].waiting() == 0

    asyncio.run(main())


def test_closing_ends_what_waits(cold):
    async def main():
        reads = [cold.aget(b"%05d" % i) for i in range(0, 20_000, 20)]
        await asyncio.to_thread(cold.close)
        done = await asyncio.wait_for(asyncio.gather(*reads, return_exceptions=True), 30)
        for i, value in enumerate(done):
            assert isinstance(value, ringdb.Error) or value == b"%05d" % (i * 20) * 100

    asyncio.run(main())
