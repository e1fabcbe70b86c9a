"""What a compaction filter returns."""

import enum


class _Removal(enum.Enum):
    REMOVE = "remove"


REMOVE = _Removal.REMOVE
