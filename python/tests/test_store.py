"""The store as Python programs use it."""

import os
import pickle
import subprocess
import sys
import threading

import pytest

import ringdb


def test_it_is_a_mapping_of_bytes(db):
    db[b"a"] = b"1"
    db[bytearray(b"b")] = bytearray(b"2")
    assert db[b"a"] == b"1" and db[b"b"] == b"2"
    assert type(db[b"a"]) is bytes
    assert b"a" in db and b"c" not in db
    assert list(db) == [b"a", b"b"]
    assert db.get(b"c") is None and db.get(b"c", b"-") == b"-" and db.get(b"a", b"-") == b"1"
    with pytest.raises(KeyError) as e:
        db[b"c"]
    assert e.value.args == (b"c",)
    del db[b"a"], db[b"c"]
    assert b"a" not in db
    db[b""] = b""
    assert db[b""] == b"" and db.first() == (b"", b"") and db.last() == (b"b", b"2")


@pytest.mark.parametrize("wrong", ["text", 1, None, [1]])
def test_other_types_are_refused(db, wrong):
    with pytest.raises(TypeError):
        db[wrong] = b"1"
    with pytest.raises(TypeError):
        db[b"a"] = wrong
    with pytest.raises(TypeError):
        db.get(wrong)
    with pytest.raises(TypeError):
        db.multi_get([b"a", wrong])
    assert list(db.items()) == []


def test_many_keys_at_once(db):
    for i in range(100):
        db[b"%03d" % i] = b"%d" % i
    assert db.multi_get([b"007", b"x", b"099", b"007"]) == [b"7", None, b"99", b"7"]
    assert db.multi_get([]) == []


def test_ranges_both_ways(db):
    pairs = [(b"%04d" % i, b"%d" % i) for i in range(2000)]
    with db.batch() as batch:
        for key, value in pairs:
            batch[key] = value
    assert list(db.items()) == pairs
    assert list(db.items(reverse=True)) == pairs[::-1]
    assert list(db.keys(start=b"0100", stop=b"0103")) == [b"0100", b"0101", b"0102"]
    assert list(db.values(start=b"1998")) == [b"1998", b"1999"]
    assert list(db.items(prefix=b"07")) == pairs[700:800]
    assert list(db.keys(prefix=b"07", start=b"0798")) == [b"0798", b"0799"]
    assert list(db.keys(prefix=b"07", stop=b"0702", reverse=True)) == [b"0701", b"0700"]
    assert list(db.keys(prefix=b"07", start=b"09")) == []
    db[b"\xff\xff"] = b"1"
    assert list(db.keys(prefix=b"\xff")) == [b"\xff\xff"] and list(db.keys(prefix=b"")) == list(db)
    # An iterator sees the store as it was.
    items = db.items()
    db.clear()
    assert len(list(items)) == 2001 and list(db) == []


def test_a_batch_happens_together_or_not_at_all(db):
    with db.batch(durability="sync") as batch:
        batch[b"a"] = b"1"
        batch.put(b"b", b"2")
        del batch[b"a"]
        assert len(batch) == 3 and b"b" not in db
    assert list(db.items()) == [(b"b", b"2")]
    with pytest.raises(ZeroDivisionError), db.batch() as batch:
        batch[b"c"] = b"3"
        1 / 0
    assert b"c" not in db
    with pytest.raises(ringdb.InvalidError, match="written already"):
        batch[b"d"] = b"4"
    with db.batch() as batch:
        batch[b"e"] = b"5"
        batch.clear()
    assert b"e" not in db
    batch = db.batch()
    batch[b"f"] = b"6"
    batch.write()
    assert db[b"f"] == b"6"


def test_transactions(db):
    db[b"n"] = b"0"
    with db.transaction() as tx:
        tx[b"n"] = b"1"
        assert tx[b"n"] == b"1" and db[b"n"] == b"0" and b"n" in tx and tx.get(b"x", b"-") == b"-"
        with pytest.raises(KeyError):
            tx[b"x"]
    assert db[b"n"] == b"1"
    with pytest.raises(ringdb.ConflictError) as e, db.transaction() as tx:
        tx[b"n"] = b"%d" % (int(tx[b"n"]) + 1)
        db[b"n"] = b"7"
    assert e.value.kind == "retry" and db[b"n"] == b"7"
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        tx[b"n"] = b"9"
        1 / 0
    assert db[b"n"] == b"7"
    with pytest.raises(ringdb.InvalidError, match="ended"):
        tx[b"n"]
    tx = db.transaction()
    tx[b"m"] = b"1"
    tx.rollback()
    assert b"m" not in db


def test_transactions_see_what_they_write_ahead(db):
    for key in (b"a", b"b", b"c"):
        db[key] = key
    with db.transaction() as tx:
        seen = []
        for key, _ in tx.items():
            seen.append(key)
            if key == b"a":
                del tx[b"b"]
                tx[b"bb"] = b"new"
        assert seen == [b"a", b"bb", b"c"]
        assert [k for k, _ in tx.items(reverse=True, prefix=b"b")] == [b"bb"]
        assert tx.multi_get([b"b", b"c"]) == [None, b"c"]
        assert tx.pop_first() == (b"a", b"a") and tx.pop_last() == (b"c", b"c")
    assert list(db) == [b"bb"]


def test_one_key_at_a_time(db):
    assert db.put_if_absent(b"a", b"1") and not db.put_if_absent(b"a", b"2")
    assert not db.compare_and_swap(b"a", b"2", b"3") and db.compare_and_swap(b"a", b"1", b"3")
    assert db.compare_and_swap(b"a", b"3", None) and b"a" not in db
    assert db.fetch_update(b"a", lambda old: old or b"new") is None and db[b"a"] == b"new"
    with pytest.raises(ZeroDivisionError):
        db.fetch_update(b"a", lambda old: 1 / 0)
    with pytest.raises(TypeError):
        db.fetch_update(b"a", lambda old: "text")
    assert db[b"a"] == b"new"
    assert db.fetch_update(b"a", lambda old: None) == b"new" and b"a" not in db


def test_threads_count_to_what_they_should(db):
    def add():
        for _ in range(500):
            db.fetch_update(b"n", lambda old: b"%d" % (int(old or 0) + 1))

    threads = [threading.Thread(target=add) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert db[b"n"] == b"2000"


def test_keyspaces_and_snapshots(db):
    users = db.keyspace("users", last_level_compression="zstd", block_bytes=8192)
    assert users.name == "users" and db.keyspaces() == ["users"] or "users" in db.keyspaces()
    users[b"a"] = b"1"
    db[b"a"] = b"2"
    with db.snapshot() as before:
        with db.batch() as batch:
            batch.put(b"a", b"3", keyspace=users)
            batch.delete(b"a")
        assert users[b"a"] == b"3" and b"a" not in db
        assert before[b"a"] == b"2" and before.keyspace(users)[b"a"] == b"1"
        assert list(before.items()) == [(b"a", b"2")]
        assert not hasattr(before, "put")
    with db.transaction() as tx:
        tx.put(b"b", tx.get(b"a", keyspace=users), keyspace=users)
    assert users.multi_get([b"b"]) == [b"3"]
    users.alter(compression="lz4")
    users.delete_range(b"a", b"b")
    assert list(users) == [b"b"]
    users.delete_prefix(b"b")
    assert list(users) == []
    assert db.drop_keyspace("users") and not db.drop_keyspace("users")
    with pytest.raises(ringdb.KeyspaceDroppedError):
        users[b"a"]


def test_what_was_written_is_there_later(path, tmp_path):
    with ringdb.open(path, durability="sync") as db:
        db[b"a"] = b"1"
        db.put(b"b", b"2", durability="none")
        db.sync()
        db.flush()
        db.compact()
        db.checkpoint(tmp_path / "checkpoint")
        assert db.backup(tmp_path / "backups")["generation"] == 1
        assert db.verify()["problems"] == []
        assert db.stats()["levels"]
        assert db.approximate_len() >= 0 and db.approximate_size() >= 0
    for place in (path, tmp_path / "checkpoint"):
        with ringdb.open(place, read_only=True) as db:
            assert list(db.items()) == [(b"a", b"1"), (b"b", b"2")]
            with pytest.raises(ringdb.ReadOnlyError):
                db[b"c"] = b"3"


@pytest.mark.parametrize("time_one_in", [0, 1])
def test_metrics(path, time_one_in):
    with ringdb.open(path, time_one_in=time_one_in) as db:
        db[b"a"] = b"1"
        for _ in range(3):
            assert db[b"a"] == b"1"
        text, open_metrics = db.metrics(), db.metrics(open_metrics=True)
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert samples[f'ringdb_write_batches_total{{store="{path}"}}'] == "1"
    gets = samples[f'ringdb_operation_seconds_count{{store="{path}",operation="get"}}']
    assert gets == str(3 * time_one_in)
    assert "# TYPE ringdb_write_batches_total counter\n" in text and "# EOF" not in text
    assert "# TYPE ringdb_write_batches counter\n" in open_metrics and open_metrics.endswith("\n# EOF\n")
    with pytest.raises(ringdb.ClosedError):
        db.metrics()


def test_errors_say_what_to_do(path, tmp_path):
    with pytest.raises(ringdb.NoStoreError):
        ringdb.open(path, create_if_missing=False)
    with pytest.raises(ringdb.InvalidError, match="cache_byte"):
        ringdb.open(path, cache_byte=1)
    with pytest.raises(ValueError, match="cache_bytes"):
        ringdb.open(path, cache_bytes="much")
    with pytest.raises(ringdb.Error, match="no_such_engine"):
        ringdb.open(path, io="no_such_engine")
    with ringdb.open(path, io="posix") as db:
        with pytest.raises(ringdb.LockedError) as e:
            ringdb.open(path)
        assert e.value.kind == "retry" and str(path) in str(e.value)
        with pytest.raises(ringdb.InvalidError, match="durability"):
            db.put(b"a", b"1", durability="forever")
        with pytest.raises(ringdb.InvalidError, match="timeout"):
            db.get(b"a", timeout=-1)
        with pytest.raises(ringdb.InvalidError, match="65536"):
            db[bytes(70_000)] = b""
        items = db.items()
    db.close()
    for call in (lambda: db[b"a"], lambda: db.put(b"a", b"1"), lambda: next(items), db.flush):
        with pytest.raises((ringdb.ClosedError, StopIteration)):
            call()
    with pytest.raises(ringdb.ClosedError):
        db.get(b"a")
    (tmp_path / "file").write_text("no store")
    with pytest.raises(ringdb.Error):
        ringdb.open(tmp_path / "file")
    error = pickle.loads(pickle.dumps(e.value))
    assert type(error) is ringdb.LockedError and error.kind == "retry" and str(error) == str(e.value)


def test_an_options_file(path, tmp_path):
    (tmp_path / "options.toml").write_text('cache_bytes = "16 MiB"\nio = "posix"\n')
    with ringdb.open(path, options_file=tmp_path / "options.toml") as db:
        assert db.stats()["io"].startswith("posix")
    with pytest.raises(ringdb.Error):
        ringdb.open(path, options_file=tmp_path / "missing.toml")


def test_a_killed_process_loses_no_synced_write(path):
    program = f"""
import os, ringdb
db = ringdb.open({str(path)!r})
for i in range(100):
    db.put(b"%03d" % i, b"x", durability="sync")
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    with ringdb.open(path) as db:
        assert len(list(db)) == 100


def test_a_child_is_told_and_leaves_the_store_alone(path):
    with ringdb.open(path) as db:
        db[b"a"] = b"1"
        child = os.fork()
        if child == 0:
            try:
                db[b"a"] = b"2"
            except ringdb.Error:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert db[b"a"] == b"1"


def test_other_threads_run_while_the_store_works(db):
    gate, seen = threading.Lock(), []

    def wait():
        with gate:
            seen.append(1)

    gate.acquire()
    thread = threading.Thread(target=wait)
    thread.start()
    interval = sys.getswitchinterval()
    # The interpreter's lock is not taken away: who holds it has to give it up.
    sys.setswitchinterval(1000)
    try:
        gate.release()
        for i in range(10_000):
            db.put(b"%d" % i, b"x", durability="sync")
            if seen:
                break
        assert seen
    finally:
        sys.setswitchinterval(interval)
    thread.join()
