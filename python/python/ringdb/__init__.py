"""An embedded, ordered, persistent key-value store for Linux that keeps a fast SSD busy.

>>> import ringdb, tempfile
>>> directory = tempfile.TemporaryDirectory()
>>> with ringdb.open(directory.name + "/store") as db:
...     db[b"apple"] = b"red"
...     with db.batch() as batch:
...         batch[b"pear"] = b"green"
...         batch[b"plum"] = b"blue"
...     list(db.items(prefix=b"p"))
[(b'pear', b'green'), (b'plum', b'blue')]
"""

from ._errors import (
    ClosedError,
    ConflictError,
    CorruptError,
    EncryptionKeyError,
    Error,
    InvalidError,
    KeyLockedError,
    KeyspaceDroppedError,
    LockedError,
    NewerFormatError,
    NoStoreError,
    ReadOnlyError,
    StoppedError,
    TimeoutError,
)
from ._filters import REMOVE
from ._ringdb import Batch, Db, Items, Keyspace, PairStream, Snapshot, Transaction, TransactionItems, open

__all__ = [
    "Batch",
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "Db",
    "EncryptionKeyError",
    "Error",
    "InvalidError",
    "Items",
    "Keyspace",
    "KeyLockedError",
    "KeyspaceDroppedError",
    "LockedError",
    "NewerFormatError",
    "NoStoreError",
    "PairStream",
    "REMOVE",
    "ReadOnlyError",
    "Snapshot",
    "StoppedError",
    "TimeoutError",
    "Transaction",
    "TransactionItems",
    "open",
]
