// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Everything that is not the I/O of a file passes through to RocksDB's own file system: names, sizes, locks, the
// information log, and the options that files are opened with. So do files that are mapped into memory.

#include "file_system.h"

#include <cstdlib>
#include <utility>

#include <rocksdb/convenience.h>

#include "async.h"
#include "files.h"
#include "status.h"

namespace engineswap {

namespace {

bool EndsWith(const std::string &name, const char *suffix) {
    const std::string s = suffix;
    return name.size() >= s.size() && name.compare(name.size() - s.size(), s.size(), s) == 0;
}

// RocksDB names a file by its kind; the options that say it are not set everywhere.
struct Kind {
    bool is_log, is_table, is_manifest, is_sst;

    explicit Kind(const std::string &path) {
        const size_t slash = path.rfind('/');
        const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
        is_log = EndsWith(name, ".log");
        is_sst = EndsWith(name, ".sst") || EndsWith(name, ".ldb");
        is_table = is_sst || EndsWith(name, ".blob");
        is_manifest = name.compare(0, 9, "MANIFEST-") == 0;
    }

    Role RoleOf(bool to_write) const {
        if (is_log)
            return kWal;
        if (is_table)
            return to_write ? kCompaction : kTables;
        return kMain;
    }

    Purpose PurposeOf(bool to_write) const {
        if (is_log)
            return to_write ? kWalWrite : kWalRead;
        if (is_table)
            return to_write ? kTableWrite : kTableRead;
        return is_manifest ? kManifest : kOther;
    }
};

} // namespace

FileSystem::FileSystem(Uri uri, std::string id, Engines engines)
    : rdb::FileSystemWrapper(rdb::FileSystem::Default()),
      uri_(std::move(uri)),
      id_(std::move(id)),
      engines_(std::move(engines)) {}

rdb::IOStatus FileSystem::Create(const std::string &text, std::unique_ptr<rdb::FileSystem> *out) {
    Uri uri;
    rdb::IOStatus s = Uri::Parse(text, &uri);
    if (!s.ok())
        return s;
    std::string id = uri.ToString();
    s = uri.Resolve(getenv("ENGINESWAP"));
    if (!s.ok())
        return s;
    Engines engines;
    s = OpenEngines(uri, &engines);
    if (s.ok())
        out->reset(new FileSystem(std::move(uri), std::move(id), std::move(engines)));
    return s;
}

std::string FileSystem::SerializeOptions(const rdb::ConfigOptions &config, const std::string &header) const {
    return config.IsShallow() ? id_ : header + "id=" + id_;
}

rdb::IOStatus FileSystem::OpenEngines(const Uri &uri, Engines *out) {
    for (size_t role = 0; role < kRoles; role++) {
        const std::string &engine = uri.engines[role];
        if (role != kMain && engine.empty()) {
            (*out)[role] = (*out)[kMain];
            continue;
        }
        rdb::IOStatus s = Engine::Open(engine, &(*out)[role]);
        if (s.IsInvalidArgument())
            return rdb::IOStatus::InvalidArgument(role == kMain ? "engineswap" : RoleName(static_cast<Role>(role)),
                                                  s.getState());
        if (!s.ok())
            return s;
        if (role == kWal && (*out)[role]->Polls())
            return rdb::IOStatus::InvalidArgument("wal", "'iopoll' polls for direct transfers, and RocksDB writes its "
                                                         "logs through the page cache; leave it out");
    }
    return rdb::IOStatus::OK();
}

rdb::IOStatus FileSystem::EngineOf(Role role, std::shared_ptr<Engine> *out) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!engines_[role]->IsOurs()) {
        Engines ours;
        rdb::IOStatus s = OpenEngines(uri_, &ours);
        if (!s.ok())
            return s;
        engines_ = std::move(ours);
    }
    *out = engines_[role];
    return rdb::IOStatus::OK();
}

rdb::IOStatus FileSystem::OpenFile(const std::string &name, bool to_write, const rdb::FileOptions &options,
                                   uint32_t flags, std::unique_ptr<File> *out) {
    std::shared_ptr<Engine> engine;
    rdb::IOStatus s = EngineOf(Kind(name).RoleOf(to_write), &engine);
    if (!s.ok())
        return s;
    if (!engine->Polls())
        return File::Open(engine, name, flags, !options.set_fd_cloexec, out);
    const bool direct = (flags & ENGINESWAP_DIRECT_REQUIRE) != 0;
    // The option would do nothing for files that it was surely asked for.
    if (!direct && Kind(name).is_table && (!to_write || !uri_.engines[kCompaction].empty()))
        return rdb::IOStatus::InvalidArgument(
            "iopoll: polls for direct transfers, and " + name + " is " +
            (to_write ? "written through the page cache: set use_direct_io_for_flush_and_compaction"
                      : "read through the page cache: set use_direct_reads") +
            ", or leave iopoll out");
    // When a direct read is refused RocksDB tries a buffered one, and if that works it says "Direct I/O is not
    // supported" and nothing of the cause. So what was said of iopoll once holds for all files read from then on.
    if (!to_write) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!not_polled_.ok())
            return not_polled_;
    }
    s = File::Open(engine, name, flags, !options.set_fd_cloexec, out);
    if (!s.ok() && direct && s.ToString().find("iopoll: ") != std::string::npos) {
        const std::lock_guard<std::mutex> lock(mutex_);
        not_polled_ = s;
    }
    return s;
}

rdb::IOStatus FileSystem::NewSequentialFile(const std::string &name, const rdb::FileOptions &options,
                                            std::unique_ptr<rdb::FSSequentialFile> *out, rdb::IODebugContext *) {
    out->reset();
    const bool direct = options.use_direct_reads && !options.use_mmap_reads;
    std::unique_ptr<File> file;
    rdb::IOStatus s = OpenFile(name, false, options, ENGINESWAP_READ | (direct ? ENGINESWAP_DIRECT_REQUIRE : 0), &file);
    if (s.ok())
        *out = MakeSequentialFile(std::move(file), Kind(name).PurposeOf(false));
    return s;
}

rdb::IOStatus FileSystem::NewRandomAccessFile(const std::string &name, const rdb::FileOptions &options,
                                              std::unique_ptr<rdb::FSRandomAccessFile> *out, rdb::IODebugContext *dbg) {
    out->reset();
    if (options.use_mmap_reads)
        return target_->NewRandomAccessFile(name, options, out, dbg);
    std::unique_ptr<File> file;
    const uint32_t direct = options.use_direct_reads ? ENGINESWAP_DIRECT_REQUIRE : 0;
    rdb::IOStatus s = OpenFile(name, false, options, ENGINESWAP_READ | direct, &file);
    if (s.ok())
        *out = MakeRandomAccessFile(std::move(file));
    return s;
}

rdb::IOStatus FileSystem::NewWritableFile(const std::string &name, const rdb::FileOptions &options,
                                          std::unique_ptr<rdb::FSWritableFile> *out, rdb::IODebugContext *dbg) {
    out->reset();
    if (options.use_mmap_writes)
        return target_->NewWritableFile(name, options, out, dbg);
    std::unique_ptr<File> file;
    const uint32_t direct = options.use_direct_writes ? ENGINESWAP_DIRECT_REQUIRE : 0;
    rdb::IOStatus s =
        OpenFile(name, true, options, ENGINESWAP_WRITE | ENGINESWAP_CREATE | ENGINESWAP_TRUNCATE | direct, &file);
    if (s.ok())
        *out = MakeWritableFile(std::move(file), options, 0, Kind(name).is_sst, Kind(name).PurposeOf(true));
    return s;
}

rdb::IOStatus FileSystem::ReopenWritableFile(const std::string &name, const rdb::FileOptions &options,
                                             std::unique_ptr<rdb::FSWritableFile> *out, rdb::IODebugContext *dbg) {
    out->reset();
    if (options.use_mmap_writes)
        return target_->ReopenWritableFile(name, options, out, dbg);
    std::unique_ptr<File> file;
    const uint32_t direct = options.use_direct_writes ? ENGINESWAP_DIRECT_REQUIRE : 0;
    rdb::IOStatus s = OpenFile(name, true, options, ENGINESWAP_WRITE | ENGINESWAP_CREATE | direct, &file);
    if (!s.ok())
        return s;
    uint64_t size = 0;
    engineswap_error err;
    if (engineswap_file_len(file->handle(), &size, &err) != ENGINESWAP_OK)
        return StatusOf(err);
    *out = MakeWritableFile(std::move(file), options, size, Kind(name).is_sst, Kind(name).PurposeOf(true));
    return s;
}

// A log is used again: its old bytes stay until they are written over, which costs no new blocks.
rdb::IOStatus FileSystem::ReuseWritableFile(const std::string &name, const std::string &old_name,
                                            const rdb::FileOptions &options, std::unique_ptr<rdb::FSWritableFile> *out,
                                            rdb::IODebugContext *dbg) {
    out->reset();
    if (options.use_mmap_writes)
        return target_->ReuseWritableFile(name, old_name, options, out, dbg);
    std::unique_ptr<File> file;
    const uint32_t direct = options.use_direct_writes ? ENGINESWAP_DIRECT_REQUIRE : 0;
    rdb::IOStatus s = OpenFile(old_name, true, options, ENGINESWAP_WRITE | direct, &file);
    if (!s.ok())
        return s;
    s = target_->RenameFile(old_name, name, options.io_options, dbg);
    if (s.ok())
        *out = MakeWritableFile(std::move(file), options, 0, Kind(name).is_sst, Kind(name).PurposeOf(true));
    return s;
}

rdb::IOStatus FileSystem::NewRandomRWFile(const std::string &name, const rdb::FileOptions &options,
                                          std::unique_ptr<rdb::FSRandomRWFile> *out, rdb::IODebugContext *) {
    out->reset();
    std::unique_ptr<File> file;
    rdb::IOStatus s = OpenFile(name, true, options, ENGINESWAP_READ | ENGINESWAP_WRITE, &file);
    if (s.ok())
        *out = MakeRandomRWFile(std::move(file));
    return s;
}

rdb::IOStatus FileSystem::NewDirectory(const std::string &name, const rdb::IOOptions &,
                                       std::unique_ptr<rdb::FSDirectory> *out, rdb::IODebugContext *) {
    out->reset();
    std::shared_ptr<Engine> engine;
    rdb::IOStatus s = EngineOf(kMain, &engine);
    return s.ok() ? MakeDirectory(engine, name, out) : s;
}

// All are waited for, however few are asked for: callers of RocksDB rely on that with its own file system.
rdb::IOStatus FileSystem::Poll(std::vector<void *> &handles, size_t /*min_completions*/) {
    return PollReads(handles);
}

rdb::IOStatus FileSystem::AbortIO(std::vector<void *> &handles) {
    return AbortReads(handles);
}

#if ENGINESWAP_HAS_SUPPORTED_OPS
void FileSystem::SupportedOps(int64_t &supported) {
    supported = int64_t{1} << rdb::FSSupportedOps::kAsyncIO;
#if ENGINESWAP_HAS_FS_PREFETCH
    supported |= int64_t{1} << rdb::FSSupportedOps::kFSPrefetch;
#endif
}
#endif

} // namespace engineswap
