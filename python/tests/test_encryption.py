"""Encrypted stores."""

import pytest

import ringdb


def files_with(path, word):
    return [f.name for f in path.iterdir() if f.is_file() and word in f.read_bytes()]


def test_stores_are_encrypted_and_keys_changed(path):
    first, second = bytes(range(32)), b"2" * 32
    with ringdb.open(path, encryption_keys={1: first}) as db:
        db[b"hush key"] = b"hush value"
        db.flush()
        db[b"hush log"] = b"hush"
        assert files_with(path, b"hush") == []
        assert db.stats()["encryption_key"] == 1
    for keys, what in ((None, "no keys were given"), ({1: second}, "does not decrypt"), ({2: second}, "not among")):
        with pytest.raises(ringdb.EncryptionKeyError, match=what) as e:
            ringdb.open(path, encryption_keys=keys)
        assert e.value.kind == "fix_call"
    with ringdb.open(path, encryption_keys={1: first, 2: second}) as db:
        db.rewrite()
        assert [key for key, _ in db.stats()["tables_by_key"]] == [2]
    with ringdb.open(path, encryption_keys={2: second}) as db:
        assert db[b"hush key"] == b"hush value"
        assert files_with(path, b"hush") == []


@pytest.mark.parametrize("wrong", [{}, {1: b"short"}, {0: b"x" * 32}])
def test_keys_are_checked(path, wrong):
    with pytest.raises(ringdb.InvalidError):
        ringdb.open(path, encryption_keys=wrong)
    assert not path.exists()
