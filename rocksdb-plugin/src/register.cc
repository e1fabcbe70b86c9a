// SPDX-License-Identifier: MIT OR Apache-2.0

#include "register.h"

#include <memory>

#include "file_system.h"

extern "C" int register_engineswap(ROCKSDB_NAMESPACE::ObjectLibrary &library, const std::string & /*arg*/) {
    using engineswap::rdb::FileSystem;
    library.AddFactory<FileSystem>(
        engineswap::rdb::ObjectLibrary::PatternEntry(engineswap::Uri::kScheme).AddSeparator("://", false),
        [](const std::string &uri, std::unique_ptr<FileSystem> *guard, std::string *message) -> FileSystem * {
            const engineswap::rdb::IOStatus s = engineswap::FileSystem::Create(uri, guard);
            if (!s.ok()) {
                // The registry puts "Invalid argument" before it again.
                *message = s.IsInvalidArgument() && s.getState() ? s.getState() : s.ToString();
            }
            return guard->get();
        });
    return 1;
}
