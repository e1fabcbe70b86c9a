"""ringdb beside rocksdict, plyvel and sqlite3, from Python: the same data and calls, by turns in rounds.

    pip install rocksdict plyvel ringdb
    python compare.py DIRECTORY [--pairs N] [--rounds N] [--json FILE]

Prints a table of medians, with the lowest and highest round. Each store is as its package makes it: no synced writes but for
the row that says so, caches left alone. What a package has not is a dash.
"""

import argparse
import json
import pathlib
import platform
import random
import shutil
import sqlite3
import statistics
import time
from importlib.metadata import version

import ringdb

KEY, VALUE, BATCH = 16, 100, 100


def key(i):
    return b"%0*d" % (KEY, i)


class Ringdb:
    name = "ringdb"

    def __init__(self, path):
        self.db = ringdb.open(path)
        self.get, self.multi_get, self.put = self.db.get, self.db.multi_get, self.db.put

    def put_many(self, pairs):
        with self.db.batch() as batch:
            for k, v in pairs:
                batch[k] = v

    def put_synced(self, k, v):
        self.db.put(k, v, durability="sync")

    def scan(self, start):
        return self.db.items(start=start)

    def close(self):
        self.db.close()


class Rocksdict:
    name = "rocksdict"

    def __init__(self, path):
        import rocksdict

        self.WriteBatch = rocksdict.WriteBatch
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        self.db = rocksdict.Rdict(path, options)
        self.get, self.multi_get, self.put = self.db.get, self.db.get, self.db.put
        self.synced = rocksdict.WriteOptions()
        self.synced.sync = True

    def put_many(self, pairs):
        batch = self.WriteBatch(raw_mode=True)
        for k, v in pairs:
            batch.put(k, v)
        self.db.write(batch)

    def put_synced(self, k, v):
        self.db.put(k, v, self.synced)

    def scan(self, start):
        return self.db.items(from_key=start)

    def close(self):
        self.db.close()


class Plyvel:
    name = "plyvel"
    multi_get = None

    def __init__(self, path):
        import plyvel

        self.db = plyvel.DB(path, create_if_missing=True)
        self.get, self.put = self.db.get, self.db.put

    def put_many(self, pairs):
        with self.db.write_batch() as batch:
            for k, v in pairs:
                batch.put(k, v)

    def put_synced(self, k, v):
        self.db.put(k, v, sync=True)

    def scan(self, start):
        return self.db.iterator(start=start)

    def close(self):
        self.db.close()


class Sqlite3:
    """A table with the key as its primary key, without row numbers, in WAL mode: what one takes for this."""

    name = "sqlite3"

    def __init__(self, path):
        pathlib.Path(path).mkdir(exist_ok=True)
        self.db = sqlite3.connect(f"{path}/db", isolation_level=None)
        self.db.execute("pragma journal_mode=wal")
        self.db.execute("pragma synchronous=normal")
        self.db.execute("create table if not exists t(k blob primary key, v blob) without rowid")

    def get(self, k):
        row = self.db.execute("select v from t where k=?", (k,)).fetchone()
        return row and row[0]

    def multi_get(self, keys):
        found = dict(self.db.execute(f"select k, v from t where k in ({','.join('?' * len(keys))})", keys))
        return [found.get(k) for k in keys]

    def put(self, k, v):
        self.db.execute("insert or replace into t values (?, ?)", (k, v))

    def put_many(self, pairs):
        self.db.execute("begin")
        self.db.executemany("insert or replace into t values (?, ?)", pairs)
        self.db.execute("commit")

    def put_synced(self, k, v):
        self.db.execute("pragma synchronous=full")
        self.put(k, v)
        self.db.execute("pragma synchronous=normal")

    def scan(self, start):
        return self.db.execute("select k, v from t where k>=? order by k", (start,))

    def close(self):
        self.db.close()


def timed(count, work):
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6 / count


def measure(store, path, pairs, seed):
    """Microseconds for each key, by workload."""
    rng = random.Random(seed)
    order = rng.sample(range(pairs), pairs)
    values = rng.randbytes(VALUE + pairs)
    data = [(key(i), values[i : i + VALUE]) for i in order]
    some = [key(rng.randrange(pairs)) for _ in range(pairs // 4)]
    chunks = [some[i : i + BATCH] for i in range(0, len(some), BATCH)]
    synced = max(pairs // 1000, 20)
    db, found = store(path), {}

    def fill():
        for i in range(0, pairs, BATCH):
            db.put_many(data[i : i + BATCH])

    found["put, in batches of 100"] = timed(pairs, fill)
    # As a program meets its data: written some time ago, by another process.
    db.close()
    db = store(path)
    right = dict(data)

    def gets():
        for k in some:
            assert db.get(k) == right[k]

    def multi_gets():
        for keys in chunks:
            assert all(v is not None for v in db.multi_get(keys))

    def scan():
        assert sum(1 for _ in db.scan(key(0))) == pairs

    def puts():
        for k in some:
            db.put(k, right[k])

    def synced_puts():
        for k in some[:synced]:
            db.put_synced(k, right[k])

    found["get, random"] = timed(len(some), gets)
    found["get, 100 keys by one call"] = timed(len(some), multi_gets) if db.multi_get else None
    found["scan of everything"] = timed(pairs, scan)
    found["put, one by one"] = timed(len(some), puts)
    found["put, synced"] = timed(synced, synced_puts)
    db.close()
    return found


def table(results, names):
    lines = ["| microseconds per key | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for workload in results[names[0]][0]:
        row = [workload]
        for name in names:
            times = [r[workload] for r in results[name]]
            if times[0] is None:
                row.append("-")
            else:
                row.append(f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path, help="on the device to be measured")
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stores", default="ringdb,rocksdict,plyvel,sqlite3", help="which of them, by commas")
    parser.add_argument("--json", type=pathlib.Path, help="also write every round to this file")
    args = parser.parse_args(argv)
    if args.pairs < BATCH or args.rounds < 1:
        parser.error(f"at least {BATCH} pairs and one round")
    known = {s.name: s for s in (Ringdb, Rocksdict, Plyvel, Sqlite3)}
    unknown = set(args.stores.split(",")) - set(known)
    if unknown:
        parser.error(f"no store is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    stores = [known[name] for name in args.stores.split(",")]
    results = {s.name: [] for s in stores}
    args.directory.mkdir(parents=True, exist_ok=True)
    for turn in range(args.rounds):
        # Each round begins with another store.
        for store in stores[turn % len(stores) :] + stores[: turn % len(stores)]:
            path = args.directory / f"compare-{store.name}"
            shutil.rmtree(path, ignore_errors=True)
            results[store.name].append(measure(store, str(path), args.pairs, turn))
            shutil.rmtree(path)
    about = {s.name: sqlite3.sqlite_version if s is Sqlite3 else version(s.name) for s in stores}
    about |= {"python": platform.python_version(), "pairs": args.pairs, "rounds": args.rounds}
    if args.json:
        args.json.write_text(json.dumps({"about": about, "microseconds": results}, indent=1) + "\n")
    print(table(results, [s.name for s in stores]))
    print("\n" + ", ".join(f"{k} {v}" for k, v in about.items()))


if __name__ == "__main__":
    main()
