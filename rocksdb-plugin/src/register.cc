// SPDX-License-Identifier: MIT OR Apache-2.0

#include "register.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <rocksdb/env.h>

#include "file_system.h"

namespace engineswap {

namespace {

std::unique_ptr<rdb::FileSystem> Make(const std::string &uri, std::string *message) {
    std::unique_ptr<rdb::FileSystem> fs;
    const rdb::IOStatus s = FileSystem::Create(uri, &fs);
    // The registry puts "Invalid argument" before the message.
    if (!s.ok())
        *message = s.IsInvalidArgument() && s.getState() != nullptr ? s.getState() : s.ToString();
    return fs;
}

// An option that is an environment is a plain pointer, which nobody owns: so there is one for each URI, for good.
rdb::Env *Shared(const std::string &uri, std::string *message) {
    static auto *const mutex = new std::mutex;
    static auto *const made = new std::map<std::string, rdb::Env *>;
    const std::lock_guard<std::mutex> lock(*mutex);
    rdb::Env *&env = (*made)[uri];
    if (env == nullptr) {
        std::unique_ptr<rdb::FileSystem> fs = Make(uri, message);
        if (fs)
            env = rdb::NewCompositeEnv(std::move(fs)).release();
    }
    return env;
}

} // namespace

} // namespace engineswap

extern "C" int register_engineswap(ROCKSDB_NAMESPACE::ObjectLibrary &library, const std::string & /*arg*/) {
    namespace rdb = engineswap::rdb;
    if (engineswap::SaysWrongVersion())
        return 0;
    const auto pattern = rdb::ObjectLibrary::PatternEntry(engineswap::Uri::kScheme).AddSeparator("://", false);
    library.AddFactory<rdb::FileSystem>(
        pattern, [](const std::string &uri, std::unique_ptr<rdb::FileSystem> *guard, std::string *message) {
            *guard = engineswap::Make(uri, message);
            return guard->get();
        });
    library.AddFactory<rdb::Env>(pattern, [](const std::string &uri, std::unique_ptr<rdb::Env> *,
                                             std::string *message) { return engineswap::Shared(uri, message); });
    return 2;
}
