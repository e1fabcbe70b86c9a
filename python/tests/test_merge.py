"""Merges, times to live, ingests and exports."""

import asyncio
import datetime
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import ringdb


def u64(n):
    return n.to_bytes(8, "little")


def test_built_in_operators(db):
    counts = db.keyspace("counts", merge_operator="add")
    for _ in range(42):
        counts.merge(b"n", u64(1))
    counts.merge(b"n", u64(100), durability="sync")
    assert counts[b"n"] == u64(142)
    tags = db.keyspace("tags", merge_operator="append:,")
    tags[b"page"] = b"new"
    with db.batch() as batch:
        batch.merge(b"page", b"red", keyspace=tags)
        batch.merge(b"page", b"round", keyspace=tags)
    assert tags[b"page"] == b"new,red,round"
    assert tags.settings()["merge_operator"] == "append:,"
    with pytest.raises(ringdb.InvalidError, match="8 bytes"):
        counts.merge(b"n", b"1")
    with pytest.raises(ringdb.InvalidError, match="no merge operator"):
        db.merge(b"n", b"1")
    with pytest.raises(ringdb.InvalidError, match="'add'"):
        counts.alter(merge_operator="max")


def test_whether_keys_are_there_asks_no_operator(path):
    class Broken:
        def merge(self, key, value, operands):
            raise RuntimeError("never")

    with ringdb.open(path, merge_operators={"broken": Broken()}) as db:
        k = db.keyspace("k", merge_operator="broken")
        k[b"a"] = b"1"
        k.merge(b"b", b"2")
        for _ in range(2):
            assert b"a" in k and b"b" in k and b"c" not in k
            assert list(k.keys()) == list(k) == [b"a", b"b"]
            assert list(k.keys(reverse=True, start=b"b")) == [b"b"]
            with pytest.raises(ringdb.InvalidError, match="never"):
                k.get(b"b")
            with pytest.raises(ringdb.InvalidError, match="never"):
                list(k.items())
            db.flush()


def test_blind_merges_of_transactions_do_not_conflict(db):
    counts = db.keyspace("counts", merge_operator="add")
    one, other = db.transaction(), db.transaction()
    one.merge(b"n", u64(1), keyspace=counts)
    other.merge(b"n", u64(2), keyspace=counts)
    assert other.get(b"n", keyspace=counts) == u64(2)
    other.rollback()
    other = db.transaction()
    other.merge(b"n", u64(2), keyspace=counts)
    one.commit()
    other.commit()
    assert counts[b"n"] == u64(3)
    reader = db.transaction()
    reader.merge(b"n", u64(2), keyspace=counts)
    assert list(reader.items(keyspace=counts)) == [(b"n", u64(5))]
    counts.merge(b"n", u64(1))
    with pytest.raises(ringdb.ConflictError):
        reader.commit()


def test_locks(db):
    db[b"n"] = b"0"
    failed = []

    def work():
        try:
            for _ in range(50):
                with db.transaction() as tx:
                    tx.lock_keys([b"n"])
                    tx[b"n"] = b"%d" % (int(tx[b"n"]) + 1)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not failed and db[b"n"] == b"200"
    one, other = db.transaction(), db.transaction()
    one.lock_keys([b"n", b"m"])
    with pytest.raises(ringdb.KeyLockedError, match="locked") as e:
        other.lock_keys([b"n"], timeout=0.01)
    assert e.value.kind == "retry"
    one.rollback()
    other.lock_keys([b"n"], timeout=0)
    with pytest.raises(ringdb.InvalidError, match="timeout"):
        other.lock_keys([b"n"], timeout=-1)
    with pytest.raises(ringdb.InvalidError, match="ended"):
        one.lock_keys([b"n"])


def longest(key, value, operands):
    assert type(key) is bytes and (value is None or type(value) is bytes) and type(operands) is list
    if key == b"raises":
        raise LookupError("not this one")
    if key == b"text":
        return "text"
    if key == b"none":
        return None
    return max([value or b"", *operands], key=len)


class Joined:
    partials = 0

    def merge(self, key, value, operands):
        return b"+".join(([value] if value is not None else []) + operands)

    def partial_merge(self, key, operands):
        if key == b"apart":
            return None
        if key == b"raises":
            raise LookupError
        self.partials += 1
        return b"+".join(operands)


def test_operators_of_python(path):
    joined = Joined()
    operators = {"longest": longest, "joined": joined}
    with ringdb.open(path, cache_bytes="8 MiB", memtable_bytes="64 KiB", merge_operators=operators) as db:
        names = db.keyspace("names", merge_operator="longest")
        lists = db.keyspace("lists", merge_operator="joined")
        names[b"k"] = b"start"
        for text in (b"a", b"the longest", b"of"):
            names.merge(b"k", text)
        assert names[b"k"] == b"the longest" and list(names.items()) == [(b"k", b"the longest")]
        for key in (b"k", b"apart", b"raises"):
            for i in range(200):
                lists.merge(key, b"%d" % i)
        whole = b"+".join(b"%d" % i for i in range(200))
        assert lists.multi_get([b"k", b"apart", b"raises"]) == [whole] * 3
        assert joined.partials > 0
        db.flush()
        db.compact()
        assert [v for _, v in lists.items()] == [whole] * 3 and names[b"k"] == b"the longest"

        # What goes wrong in it is said to who reads, compactions keep the operands, and nothing is lost.
        for key, what in ((b"raises", "LookupError: not this one"), (b"text", "returned str"), (b"none", "NoneType")):
            names.merge(key, b"kept")
            with pytest.raises(ringdb.InvalidError, match=what) as e:
                names[key]
            assert "longest" in str(e.value) and e.value.kind == "fix_call"
        db.flush()
        names.compact()
        with pytest.raises(ringdb.InvalidError, match="fails for key"):
            list(names.items())
        assert names[b"k"] == b"the longest"
    with ringdb.open(path) as db:
        with pytest.raises(ringdb.InvalidError, match="'longest' is not known"):
            db.keyspace("names")[b"text"]
    assert ringdb.open(path, merge_operators={"longest": lambda *_: b"x"}).keyspace("names")[b"text"] == b"x"


@pytest.mark.parametrize("wrong", [{"a": 5}, {"": longest}, {"x" * 256: longest}])
def test_operators_are_checked(path, wrong):
    with pytest.raises(ringdb.InvalidError):
        ringdb.open(path, merge_operators=wrong)
    assert not path.exists()
    with pytest.raises(TypeError):
        ringdb.open(path, merge_operators=[longest])


def test_threads_beside_flushes_and_compactions_that_call_python(path):
    with ringdb.open(path, cache_bytes="8 MiB", memtable_bytes="64 KiB", merge_operators={"j": Joined()}) as db:
        lists = db.keyspace("lists", merge_operator="j")
        failed = []

        def work(t):
            try:
                for i in range(300):
                    lists.merge(b"k%d" % (i % 3), b"%d.%d" % (t, i))
                    with db.transaction() as tx:
                        tx.merge(b"t", b".", keyspace=lists)
                    if i % 50 == t:
                        db.flush()
                    if i % 20 == t:
                        assert lists[b"k0"] and len(list(lists.items())) >= 2
            except BaseException as e:
                failed.append(e)

        threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
        for t in threads:
            t.start()
        shared = db.transaction()
        for _ in range(50):
            shared.merge(b"s", b"x", keyspace=lists)
            shared.get(b"s", keyspace=lists)
        shared.commit()
        for t in threads:
            t.join(120)
            assert not t.is_alive(), "they wait for each other"
        lists.compact()
        assert not failed
        found = b"+".join(lists.get(b"k%d" % k) for k in range(3)).split(b"+")
        assert sorted(found) == sorted(b"%d.%d" % (t, i) for t in range(4) for i in range(300))
        assert lists[b"t"].count(b".") == 1200


def test_one_transaction_of_two_threads_whose_operator_takes_its_time(path):
    def slow(key, value, operands):
        time.sleep(0.05)
        return b"".join(operands)

    with ringdb.open(path, merge_operators={"slow": slow}) as db:
        k = db.keyspace("k", merge_operator="slow")
        tx = db.transaction()
        tx.merge(b"a", b"1", keyspace=k)
        reader = threading.Thread(target=lambda: tx.get(b"a", keyspace=k))
        reader.start()
        time.sleep(0.02)
        tx.rollback()
        reader.join(60)
        assert not reader.is_alive()


@pytest.mark.parametrize("end", ["pass", "del db, k", "db.close()", "raise SystemExit(0)", "k[b'a']"])
def test_programs_end_while_compactions_call_python(tmp_path, end):
    program = f"""
        import ringdb, threading, time
        def merge(key, value, operands):
            time.sleep(0.001)
            return b"".join(operands)[:100]
        db = ringdb.open({str(tmp_path / "store")!r}, cache_bytes="8 MiB", memtable_bytes="64 KiB",
                         merge_operators=dict(m=merge))
        k = db.keyspace("k", merge_operator="m")
        for i in range(3000):
            k.merge(b"%03d" % (i % 100), b"x" * 100)
        k[b"a"] = b"1"
        def beside(call):
            try:
                call()
            except ringdb.Error:
                pass  # the store, or the interpreter, has ended
        threading.Thread(target=beside, args=(db.flush,), daemon=True).start()
        threading.Thread(target=beside, args=(lambda: list(k.items()),), daemon=True).start()
        {end}
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], timeout=120, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    with ringdb.open(tmp_path / "store", merge_operators={"m": lambda key, value, operands: b""}) as db:
        assert b"000" in db.keyspace("k") and db.keyspace("k")[b"a"] == b"1"


@pytest.mark.parametrize("within", [False, True])
def test_a_forked_child_ends_whatever_its_parent_merges(tmp_path, within):
    program = f"""
        import os, ringdb, sys, threading, time
        begun, forked = threading.Event(), []
        def merge(key, value, operands):
            begun.set()
            if {within}:
                forked.append(os.fork())
            time.sleep(0.5)
            return b"".join(operands)
        db = ringdb.open({str(tmp_path / "store")!r}, merge_operators=dict(m=merge))
        k = db.keyspace("k", merge_operator="m")
        k.merge(b"a", b"x")
        def read():
            try:
                k[b"a"]
            except ringdb.Error:
                pass  # in a child
        if {within}:
            read()
        else:
            threading.Thread(target=read).start()
            begun.wait()
            forked.append(os.fork())
        if forked[0] == 0:
            sys.exit(7)  # not os._exit: what atexit has is run
        assert os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1]) == 7
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    ran = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_times_to_live(db):
    db[b"old"] = b"below"
    db.put(b"old", b"x", ttl=0.001)
    db.put(b"late", b"x", ttl=datetime.timedelta(hours=1), durability="sync")
    with db.batch() as batch:
        batch.put(b"in a batch", b"x", ttl=0.001)
        batch.put(b"later", b"x", ttl=3600)
    sessions = db.keyspace("sessions", time_to_live="1 ms")
    sessions[b"7f3a"] = b"alice"
    asyncio.run(later(db))
    time.sleep(0.01)
    assert list(db) == [b"aput for long", b"late", b"later"] and list(sessions) == []
    sessions.alter(time_to_live=0)
    sessions[b"7f3a"] = b"alice"
    time.sleep(0.005)
    assert sessions[b"7f3a"] == b"alice" and sessions.settings()["time_to_live"] == "0 ms"
    for wrong in (0, -1, float("nan"), float("inf"), datetime.timedelta(0), datetime.timedelta(-1)):
        with pytest.raises(ringdb.InvalidError, match="ttl"):
            db.put(b"k", b"v", ttl=wrong)
    with pytest.raises(TypeError):
        db.put(b"k", b"v", ttl="1 h")
    with pytest.raises(ringdb.InvalidError, match="time_to_live"):
        db.keyspace("x", time_to_live="soon")


async def later(db):
    await db.aput(b"aput", b"x", ttl=0.001)
    await db.aput(b"aput for long", b"x", ttl=60)
    counts = db.keyspace("counts", merge_operator="add")
    await asyncio.gather(*(counts.amerge(b"n", u64(1)) for _ in range(100)))
    assert await counts.aget(b"n") == u64(100)
    with pytest.raises(ringdb.InvalidError):
        await counts.amerge(b"n", b"1")


def test_ingest_export_import(db, tmp_path):
    pairs = [(b"%06d" % i, b"%d" % (i * i)) for i in range(5000)]
    assert db.ingest(iter(pairs)) == 5000 and list(db.items()) == pairs
    assert db.keyspace("k").ingest({b"a": b"1", b"b": b"2"}.items()) == 2 and db.ingest([]) == 0
    with pytest.raises(ringdb.InvalidError, match="ascending"):
        db.ingest([(b"b", b""), (b"a", b"")])
    with pytest.raises(ZeroDivisionError):
        db.ingest((b"x%06d" % i, b"%d" % (1 // (3000 - i))) for i in range(5000))
    with pytest.raises(TypeError):
        db.ingest([(b"x", "text")])
    with pytest.raises(TypeError):
        db.ingest(5)
    assert list(db.items()) == pairs
    snapshot = db.snapshot()
    db.clear()
    report = snapshot.export_range(tmp_path / "exported", b"000010", b"000020")
    assert report["pairs"] == 10
    there = db.keyspace("there")
    assert there.import_tables(tmp_path / "exported") == 10 and list(there.items()) == pairs[10:20]
    with pytest.raises(ringdb.InvalidError, match="not empty"):
        there.export_range(tmp_path / "exported")
    with pytest.raises(ringdb.InvalidError):
        there.import_tables(tmp_path / "nothing")
