"""Compaction filters."""

import subprocess
import sys
import textwrap
import threading

import pytest

import ringdb


def by_value(key, value):
    assert type(key) is bytes and type(value) is bytes
    if value == b"raises":
        raise LookupError("not this one")
    return {
        b"goes": ringdb.REMOVE,
        b"changes": b"of " + key,
        b"array": bytearray(b"an array"),
        b"empties": b"",
        b"text": "text",
        b"false": False,
    }.get(value)


def test_what_the_callable_returns(path):
    with ringdb.open(path, compaction_filters={"by value": by_value}) as db:
        k = db.keyspace("k", compaction_filter="by value")
        assert k.settings()["compaction_filter"] == "by value"
        for value in (b"stays", b"goes", b"changes", b"array", b"empties"):
            k[value] = value
        db[b"goes"] = b"goes"
        before = db.snapshot()
        k.compact()
        stats = db.stats()
        counts = [stats["compaction_filter_" + what] for what in ("seen", "removed", "changed")]
        assert counts == [5, 1, 3] and stats["background_error"] is None
        db.compact()
        assert dict(k.items()) == {b"stays": b"stays", b"changes": b"of changes", b"array": b"an array", b"empties": b""}
        assert db[b"goes"] == b"goes" and before.keyspace(k)[b"goes"] == b"goes"
        with pytest.raises(ringdb.InvalidError, match="'unknown' is not known"):
            k.alter(compaction_filter="unknown")
        k.alter(compaction_filter="")
        k[b"goes"] = b"goes"
        k.compact()
        assert k[b"goes"] == b"goes" and k.settings()["compaction_filter"] is None
        k.alter(compaction_filter="by value")
    with ringdb.open(path) as db:
        k = db.keyspace("k")
        k.compact()
        assert k[b"goes"] == b"goes"
    with ringdb.open(path, compaction_filters={"by value": lambda key, value: ringdb.REMOVE}) as db:
        db.keyspace("k").compact()
        assert list(db.keyspace("k")) == []


@pytest.mark.parametrize(
    "value, why",
    [(b"raises", "LookupError: not this one"), (b"text", "returned str, not"), (b"false", "returned bool, not")],
)
def test_what_goes_wrong_removes_nothing_and_is_told(path, value, why):
    with ringdb.open(path, compaction_filters={"by value": by_value}) as db:
        k = db.keyspace("k", compaction_filter="by value")
        k[b"a"], k[b"b"], k[b"c"] = b"goes", value, b"goes"
        k.compact()
        assert list(k) == [b"b", b"c"]
        told = db.stats()["background_error"]
        assert "'by value' fails for key" in told and why in told
        k[b"b"] = b"stays"
        k.compact()
        assert list(k) == [b"b"]


@pytest.mark.parametrize("wrong", [{"a": 5}, {"": by_value}, {"x" * 256: by_value}])
def test_filters_are_checked(path, wrong):
    with pytest.raises(ringdb.InvalidError):
        ringdb.open(path, compaction_filters=wrong)
    assert not path.exists()
    with pytest.raises(TypeError):
        ringdb.open(path, compaction_filters=[by_value])


def test_threads_beside_compactions_that_call_python(path):
    def odd(key, value):
        return ringdb.REMOVE if int(value) % 2 else None

    with ringdb.open(path, cache_bytes="8 MiB", memtable_bytes="64 KiB", compaction_filters={"odd": odd}) as db:
        k = db.keyspace("k", compaction_filter="odd")
        failed = []

        def work(t):
            try:
                for i in range(1000):
                    k[b"%d.%d" % (t, i)] = b"%d" % i
                    if i % 100 == t:
                        k.compact()
            except BaseException as e:
                failed.append(e)

        threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
            assert not t.is_alive(), "they wait for each other"
        k.compact()
        assert not failed and len(list(k)) == 4 * 500
        assert db.stats()["compaction_filter_removed"] == 4 * 500


@pytest.mark.parametrize("end", ["pass", "del db, k", "db.close()", "raise SystemExit(0)", "fork()"])
def test_programs_end_while_compactions_call_python(tmp_path, end):
    program = f"""
        import os, ringdb, sys, threading, time
        begun = threading.Event()
        def filter(key, value):
            begun.set()
            time.sleep(0.001)
            return ringdb.REMOVE
        def fork():
            child = os.fork()
            if child == 0:
                sys.exit(7)  # not os._exit: what atexit has is run
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        db = ringdb.open({str(tmp_path / "store")!r}, compaction_filters=dict(f=filter))
        k = db.keyspace("k", compaction_filter="f")
        for i in range(3000):
            k[b"%04d" % i] = b"x"
        def compact():
            try:
                k.compact()
            except ringdb.Error:
                pass  # the store, or the interpreter, has ended
        threading.Thread(target=compact, daemon=True).start()
        assert begun.wait(60)
        {end}
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    ran = subprocess.run(command, timeout=120, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    # What was passed before the end is gone if the compaction came to its own; from then on all entries are kept.
    with ringdb.open(tmp_path / "store") as db:
        left = list(db.keyspace("k"))
        assert left == [b"%04d" % i for i in range(3000 - len(left), 3000)]
