"""A program for LevelDB's C interface in another language: it asks the loader for libleveldb, whatever that is.

usage: program.py DIRECTORY
"""

import ctypes
import sys

CALLBACK = ctypes.CFUNCTYPE
lib = ctypes.CDLL("libleveldb.so.1")
P, S, Z = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
for name, result, arguments in [
    ("open", P, [P, S, P]),
    ("close", None, [P]),
    ("put", None, [P, P, S, Z, S, Z, P]),
    ("get", P, [P, P, S, Z, P, P]),
    ("write", None, [P, P, P, P]),
    ("create_iterator", P, [P, P]),
    ("iter_seek_to_last", None, [P]),
    ("iter_valid", ctypes.c_uint8, [P]),
    ("iter_prev", None, [P]),
    ("iter_key", P, [P, P]),
    ("iter_destroy", None, [P]),
    ("writebatch_create", P, []),
    ("writebatch_put", None, [P, S, Z, S, Z]),
    ("writebatch_delete", None, [P, S, Z]),
    ("options_create", P, []),
    ("options_set_create_if_missing", None, [P, ctypes.c_uint8]),
    ("options_set_comparator", None, [P, P]),
    ("readoptions_create", P, []),
    ("writeoptions_create", P, []),
    ("writeoptions_set_sync", None, [P, ctypes.c_uint8]),
    ("comparator_create", P, [P, P, P, P]),
    ("free", None, [P]),
]:
    function = getattr(lib, "leveldb_" + name)
    function.restype, function.argtypes = result, arguments

error = ctypes.c_void_p()
failed = ctypes.byref(error)


def check():
    if error.value:
        raise RuntimeError(ctypes.string_at(error.value).decode())


@CALLBACK(ctypes.c_int, P, P, Z, P, Z)
def compare(_state, a, alen, b, blen):
    a, b = ctypes.string_at(a, alen), ctypes.string_at(b, blen)
    return (a > b) - (a < b)


@CALLBACK(S, P)
def name(_state):
    return b"python"


@CALLBACK(None, P)
def end(_state):
    pass


pointer = lambda callback: ctypes.cast(callback, P)
comparator = lib.leveldb_comparator_create(None, pointer(end), pointer(compare), pointer(name))
options = lib.leveldb_options_create()
lib.leveldb_options_set_create_if_missing(options, 1)
lib.leveldb_options_set_comparator(options, comparator)
reading = lib.leveldb_readoptions_create()
writing = lib.leveldb_writeoptions_create()
lib.leveldb_writeoptions_set_sync(writing, 1)

db = lib.leveldb_open(options, sys.argv[1].encode(), failed)
check()
batch = lib.leveldb_writebatch_create()
for key in [b"apple", b"pear", b"plum"]:
    lib.leveldb_writebatch_put(batch, key, len(key), b"red", 3)
lib.leveldb_writebatch_delete(batch, b"pear", 4)
lib.leveldb_write(db, writing, batch, failed)
check()
lib.leveldb_put(db, writing, b"kiwi", 4, b"green", 5, failed)
check()
length = Z()
value = lib.leveldb_get(db, reading, b"kiwi", 4, ctypes.byref(length), failed)
check()
print(ctypes.string_at(value, length.value).decode())
lib.leveldb_free(value)
iterator = lib.leveldb_create_iterator(db, reading)
lib.leveldb_iter_seek_to_last(iterator)
while lib.leveldb_iter_valid(iterator):
    print(ctypes.string_at(lib.leveldb_iter_key(iterator, ctypes.byref(length)), length.value).decode())
    lib.leveldb_iter_prev(iterator)
lib.leveldb_iter_destroy(iterator)
lib.leveldb_close(db)
