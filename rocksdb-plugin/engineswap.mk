# SPDX-License-Identifier: MIT OR Apache-2.0
#
# engineswap as plugin/engineswap of a RocksDB source tree, by make:
#     make capi                                            # here: the C interface, into target/capi
#     ln -s .../rocksdb-plugin ROCKSDB/plugin/engineswap   # or a copy
#     make -C ROCKSDB ROCKSDB_PLUGINS=engineswap db_bench  # a copy: ENGINESWAP_PREFIX=where `make install` put it
# RocksDB's CMakeLists.txt reads the lines below too; each must stay one line. preload.cc is not among them: a build
# that has the plugin registers it by the function that is named here.
engineswap_SOURCES = src/async.cc src/behind.cc src/c_api.cc src/directory.cc src/engine.cc src/file_system.cc src/queue.cc src/random_access.cc src/random_rw.cc src/register.cc src/sequential.cc src/status.cc src/uri.cc src/version.cc src/writable.cc
engineswap_HEADERS = include/engineswap_rocksdb.h
engineswap_FUNC = register_engineswap

ENGINESWAP_PREFIX ?= $(realpath plugin/engineswap)/../target/capi
ifeq ($(wildcard $(ENGINESWAP_PREFIX)/lib/libengineswap.a),)
$(error no $(ENGINESWAP_PREFIX)/lib/libengineswap.a: run `make capi` in engineswap's repository, or set ENGINESWAP_PREFIX)
endif
engineswap_CXXFLAGS = -isystem $(ENGINESWAP_PREFIX)/include
# A shared library may have undefined symbols: the linker is told that it must not lack this one.
engineswap_LDFLAGS = -Wl,--require-defined=register_engineswap $(ENGINESWAP_PREFIX)/lib/libengineswap.a -lpthread -ldl -lm
