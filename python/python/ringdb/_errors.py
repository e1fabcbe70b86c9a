"""What goes wrong, by what the caller can do about it."""

import builtins


class Error(Exception):
    """A call that failed. ``kind`` says what to do.

    ``retry``: mend the cause, or run the transaction again; ``stop``: reopen the store; ``repair``: see
    ``ringdb verify``; ``timed_out``; ``would_block``; ``fix_call``: the call is wrong.
    """

    def __init__(self, message: str, kind: str = "fix_call") -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self):
        return type(self), (str(self), self.kind)


class ConflictError(Error):
    """What the transaction has read was written meanwhile: run it again."""


class EncryptionKeyError(Error):
    """A file is encrypted with a key that was not given, or with another one."""


class KeyLockedError(Error):
    """Another transaction has locked the key: roll this one back, and run it again."""


class LockedError(Error):
    """The store is open already, here or in another process."""


class CorruptError(Error):
    """Bytes on the disk are wrong."""


class StoppedError(Error):
    """The store has stopped writing after a failure; reads go on."""


class ClosedError(Error):
    """The store was closed."""


class NoStoreError(Error):
    """There is no store, and none was to be created."""


class NewerFormatError(Error):
    """The store was written by a newer version."""


class ReadOnlyError(Error):
    """The store was opened read-only."""


class KeyspaceDroppedError(Error):
    """The keyspace was dropped."""


class InvalidError(Error, ValueError):
    """A wrong argument or option."""


class TimeoutError(Error, builtins.TimeoutError):
    """The call has not ended in time; a write may have happened."""
