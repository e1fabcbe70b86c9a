// SPDX-License-Identifier: MIT OR Apache-2.0
//
// engineswap://ENGINE[?OPTION[=VALUE]&...][&wal=ENGINE][&tables=ENGINE][&compaction=ENGINE]
//
// ENGINE and its options are engineswap's own (posix, libaio, io_uring, auto). `wal`, `tables` and `compaction` give
// some files an engine of their own; its options are written in parentheses, with commas:
//
//     engineswap://io_uring?depth=64&wal=posix&compaction=io_uring(depth=8,force_async)
//
// An empty ENGINE, or `auto` without options, is the environment variable ENGINESWAP if it is set (it may name other
// engines for some files too), else the best engine that works here.
#pragma once

#include <array>
#include <string>

#include <rocksdb/io_status.h>

#include "version.h"

namespace engineswap {

// Which files an engine serves. `kMain` serves those of a role that names no engine.
enum Role : size_t { kMain, kWal, kTables, kCompaction, kRoles };

struct Uri {
    static constexpr const char *kScheme = "engineswap";

    // An engine's URI for each role, in engineswap's notation; empty for a role without an engine of its own.
    std::array<std::string, kRoles> engines;

    // Takes `text` with or without the scheme. Knows the roles and leaves engines and their options to engineswap,
    // which knows what is valid. InvalidArgument says what is wrong and what can be written.
    static rdb::IOStatus Parse(const std::string &text, Uri *out);

    // Puts the environment's choice in the place of `auto`. `variable` is the value of ENGINESWAP or null.
    rdb::IOStatus Resolve(const char *variable);

    // The text that Parse reads back to the same, with the scheme.
    std::string ToString() const;
};

// The name of a role in a URI.
const char *RoleName(Role role);

} // namespace engineswap
