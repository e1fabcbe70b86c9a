from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from os import PathLike
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, TypeAlias, TypeVar, overload

Bytes: TypeAlias = bytes | bytearray
Durability: TypeAlias = Literal["none", "process", "sync"]
Compression: TypeAlias = Literal["none", "lz4", "zstd"]
T = TypeVar("T")

Merge: TypeAlias = Callable[[bytes, bytes | None, list[bytes]], Bytes]

class MergeOperator(Protocol):
    def merge(self, key: bytes, value: bytes | None, operands: list[bytes]) -> Bytes:
        """The value that comes of what was put (or None) and then the operands, oldest first."""

class PartialMergeOperator(MergeOperator, Protocol):
    def partial_merge(self, key: bytes, operands: list[bytes]) -> Bytes | None:
        """One operand that does the same as all of them, or None. It has to be associative."""

class _Removal(Enum):
    REMOVE = "remove"

REMOVE: Final = _Removal.REMOVE
"""What a compaction filter returns for an entry that goes."""

# Of a key and its value: None if the entry stays, its new value, or REMOVE.
CompactionFilter: TypeAlias = Callable[[bytes, bytes], Bytes | Literal[_Removal.REMOVE] | None]

class Error(Exception):
    kind: Literal["retry", "stop", "repair", "would_block", "timed_out", "fix_call"]
    def __init__(self, message: str, kind: str = "fix_call") -> None: ...

class ClosedError(Error): ...
class ConflictError(Error): ...
class CorruptError(Error): ...
class EncryptionKeyError(Error): ...
class InvalidError(Error, ValueError): ...
class KeyLockedError(Error): ...
class KeyspaceDroppedError(Error): ...
class LockedError(Error): ...
class NewerFormatError(Error): ...
class NoStoreError(Error): ...
class ReadOnlyError(Error): ...
class StoppedError(Error): ...
class TimeoutError(Error, __builtins__.TimeoutError): ...  # type: ignore[name-defined]

def open(
    path: str | PathLike[str],
    *,
    read_only: bool = False,
    options_file: str | PathLike[str] | None = None,
    merge_operators: Mapping[str, Merge | MergeOperator | PartialMergeOperator] | None = None,
    compaction_filters: Mapping[str, CompactionFilter] | None = None,
    encryption_keys: Mapping[int, bytes] | None = None,
    io: str = ...,
    cache_bytes: int | str = ...,
    memtable_bytes: int | str = ...,
    durability: Durability = ...,
    block_bytes: int | str = ...,
    compression: Compression = ...,
    last_level_compression: Compression = ...,
    filter_bits_per_key: int = ...,
    time_to_live: int | str = ...,
    background_threads: int = ...,
    log_segment_bytes: int | str = ...,
    table_bytes: int | str = ...,
    compaction_bytes_per_second: int | str = ...,
    manifest_bytes: int | str = ...,
    time_one_in: int = ...,
    direct_reads: bool = ...,
    create_if_missing: bool = ...,
    recover_damaged_log: bool = ...,
    socket: bool = ...,
) -> Db:
    """Opens a store, or makes one. Options that are not given are as the file has them, else as the store remembers.

    Threads of the store call merge operators, also while it compacts; they must not call the store.
    """

class Items(Iterator[T]):
    """Pairs, keys or values in key order, as they were when it was made."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> T: ...

class PairStream(AsyncIterator[tuple[bytes, bytes]]):
    """Pairs in key order, without blocking the event loop."""
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[tuple[bytes, bytes]]: ...

class Reader:
    @overload
    def get(self, key: Bytes, *, timeout: float | None = None) -> bytes | None: ...
    @overload
    def get(self, key: Bytes, default: T, *, timeout: float | None = None) -> bytes | T:
        """The value of a key, or the default. The timeout is in seconds."""
    def __getitem__(self, key: Bytes) -> bytes: ...
    def __contains__(self, key: Bytes) -> bool: ...
    def __iter__(self) -> Items[bytes]: ...
    def multi_get(self, keys: Sequence[Bytes], *, timeout: float | None = None) -> list[bytes | None]:
        """The values of many keys: all that has to be read is in flight together."""
    def items(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        stop: Bytes | None = None,
        reverse: bool = False,
    ) -> Items[tuple[bytes, bytes]]:
        """The pairs from ``start`` on and before ``stop`` whose keys begin with ``prefix``."""
    def keys(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        stop: Bytes | None = None,
        reverse: bool = False,
    ) -> Items[bytes]: ...
    def values(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        stop: Bytes | None = None,
        reverse: bool = False,
    ) -> Items[bytes]: ...
    def export_range(
        self, path: str | PathLike[str], start: Bytes | None = None, stop: Bytes | None = None
    ) -> dict[str, Any]:
        """Writes the pairs from ``start`` on and before ``stop`` as sorted tables into a new or empty directory."""
    def first(self) -> tuple[bytes, bytes] | None: ...
    def last(self) -> tuple[bytes, bytes] | None: ...
    @overload
    def aget(self, key: Bytes, *, timeout: float | None = None) -> Awaitable[bytes | None]: ...
    @overload
    def aget(self, key: Bytes, default: T, *, timeout: float | None = None) -> Awaitable[bytes | T]: ...
    def amulti_get(self, keys: Sequence[Bytes], *, timeout: float | None = None) -> Awaitable[list[bytes | None]]: ...
    def aitems(
        self, *, prefix: Bytes | None = None, start: Bytes | None = None, stop: Bytes | None = None
    ) -> PairStream: ...

class Snapshot(Reader):
    """The store as it was at one moment, in every keyspace."""
    def keyspace(self, keyspace: Keyspace) -> Snapshot: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Writer(Reader):
    def put(
        self, key: Bytes, value: Bytes, *, durability: Durability | None = None, ttl: float | timedelta | None = None
    ) -> None:
        """Sets a key; with ``ttl`` (seconds) it counts as deleted from then on."""
    def __setitem__(self, key: Bytes, value: Bytes) -> None: ...
    def merge(self, key: Bytes, operand: Bytes, *, durability: Durability | None = None) -> None:
        """Merges an operand into the value, without reading it, by the keyspace's ``merge_operator``."""
    def ingest(self, pairs: Iterable[tuple[Bytes, Bytes]]) -> int:
        """Pairs in the order of their keys become tables, all of them or none; how many."""
    def import_tables(self, path: str | PathLike[str]) -> int:
        """Ingests all pairs of an export; how many."""
    def delete(self, key: Bytes, *, durability: Durability | None = None) -> None: ...
    def __delitem__(self, key: Bytes) -> None:
        """Deletes a key. One that is not there is no error: it is not looked up."""
    def delete_range(self, start: Bytes | None = None, stop: Bytes | None = None) -> None: ...
    def delete_prefix(self, prefix: Bytes) -> None: ...
    def clear(self) -> None: ...
    def compact(self, start: Bytes | None = None, stop: Bytes | None = None) -> None: ...
    def approximate_len(self) -> int: ...
    def approximate_size(self, start: Bytes | None = None, stop: Bytes | None = None) -> int:
        """Bytes of tables, about."""
    def put_if_absent(self, key: Bytes, value: Bytes) -> bool: ...
    def compare_and_swap(self, key: Bytes, expected: Bytes | None, new: Bytes | None) -> bool: ...
    def fetch_update(self, key: Bytes, change: Callable[[bytes | None], Bytes | None]) -> bytes | None:
        """Sets a key to what ``change`` makes of its value; the value before. ``change`` may be called again."""
    def aput(
        self, key: Bytes, value: Bytes, *, durability: Durability | None = None, ttl: float | timedelta | None = None
    ) -> Awaitable[None]: ...
    def amerge(self, key: Bytes, operand: Bytes, *, durability: Durability | None = None) -> Awaitable[None]: ...
    def adelete(self, key: Bytes, *, durability: Durability | None = None) -> Awaitable[None]: ...

class Keyspace(Writer):
    """A named set of keys."""
    @property
    def name(self) -> str: ...
    def settings(self) -> dict[str, Any]:
        """The settings in force."""
    def alter(
        self,
        *,
        compression: Compression = ...,
        last_level_compression: Compression = ...,
        block_bytes: int | str = ...,
        filter_bits_per_key: int = ...,
        merge_operator: str = ...,
        compaction_filter: str = ...,
        time_to_live: int | str = ...,
    ) -> None:
        """Changes settings; those that are not given stay. A merge operator, once there, stays; ``compaction_filter`` may be
        another one, or ``""``."""

class Db(Writer):
    """An open store, for any number of threads."""
    def keyspace(
        self,
        name: str,
        *,
        compression: Compression = ...,
        last_level_compression: Compression = ...,
        block_bytes: int | str = ...,
        filter_bits_per_key: int = ...,
        merge_operator: str = ...,
        compaction_filter: str = ...,
        time_to_live: int | str = ...,
    ) -> Keyspace:
        """A keyspace, made if it is missing.

        ``merge_operator``: ``"add"``, ``"max"``, ``"append"``, ``"append:SEPARATOR"`` or one of ``open``;
        ``compaction_filter``: one of ``open``; ``time_to_live``: seconds, or as in ``"1 h"``.
        """
    def keyspaces(self) -> list[str]: ...
    def drop_keyspace(self, name: str) -> bool: ...
    def batch(self, *, durability: Durability | None = None) -> Batch: ...
    def transaction(self, *, durability: Durability | None = None) -> Transaction: ...
    def snapshot(self) -> Snapshot: ...
    def rewrite(self) -> None:
        """Writes every table anew, with the newest encryption key and the settings of now."""

    def flush(self) -> None: ...
    def sync(self) -> None:
        """Makes everything durable that was written so far."""
    def async_sync(self) -> Awaitable[None]: ...
    def checkpoint(self, path: str | PathLike[str]) -> None: ...
    def backup(self, path: str | PathLike[str]) -> dict[str, Any]: ...
    def verify(self) -> dict[str, Any]: ...
    def stats(self) -> dict[str, Any]: ...
    def metrics(self, *, open_metrics: bool = False) -> str:
        """What the store counts, as text for Prometheus, or for OpenMetrics."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Batch:
    """Writes that happen together or not at all, at the end of the ``with`` (or ``async with``) block."""
    def put(
        self,
        key: Bytes,
        value: Bytes,
        *,
        keyspace: Keyspace | None = None,
        ttl: float | timedelta | None = None,
    ) -> None: ...
    def __setitem__(self, key: Bytes, value: Bytes) -> None: ...
    def merge(self, key: Bytes, operand: Bytes, *, keyspace: Keyspace | None = None) -> None: ...
    def delete(self, key: Bytes, *, keyspace: Keyspace | None = None) -> None: ...
    def __delitem__(self, key: Bytes) -> None: ...
    def __len__(self) -> int: ...
    def clear(self) -> None: ...
    def write(self) -> None: ...
    def awrite(self) -> Awaitable[None]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __aenter__(self) -> Awaitable[Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Awaitable[None]: ...

class TransactionItems(Iterator[tuple[bytes, bytes]]):
    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[bytes, bytes]: ...

class Transaction:
    """Serializable reads and writes; committed at the end of the ``with`` block, where it may raise ConflictError."""
    @overload
    def get(self, key: Bytes, *, keyspace: Keyspace | None = None) -> bytes | None: ...
    @overload
    def get(self, key: Bytes, default: T, *, keyspace: Keyspace | None = None) -> bytes | T: ...
    def __getitem__(self, key: Bytes) -> bytes: ...
    def __contains__(self, key: Bytes) -> bool: ...
    def multi_get(self, keys: Sequence[Bytes], *, keyspace: Keyspace | None = None) -> list[bytes | None]: ...
    def put(self, key: Bytes, value: Bytes, *, keyspace: Keyspace | None = None) -> None: ...
    def __setitem__(self, key: Bytes, value: Bytes) -> None: ...
    def merge(self, key: Bytes, operand: Bytes, *, keyspace: Keyspace | None = None) -> None:
        """Is no read: transactions that merge into one key do not conflict."""
    def delete(self, key: Bytes, *, keyspace: Keyspace | None = None) -> None: ...
    def __delitem__(self, key: Bytes) -> None: ...
    def lock_keys(
        self, keys: Sequence[Bytes], *, keyspace: Keyspace | None = None, timeout: float | None = None
    ) -> None:
        """Locks keys until the transaction has ended, and goes on from now. Waits for five seconds, or ``timeout``."""
    def pop_first(self, *, keyspace: Keyspace | None = None) -> tuple[bytes, bytes] | None: ...
    def pop_last(self, *, keyspace: Keyspace | None = None) -> tuple[bytes, bytes] | None: ...
    def items(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        stop: Bytes | None = None,
        reverse: bool = False,
        keyspace: Keyspace | None = None,
    ) -> TransactionItems: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
