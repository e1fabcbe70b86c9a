// SPDX-License-Identifier: MIT OR Apache-2.0

#include "engine.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "status.h"

namespace engineswap {

namespace {

// Counts the forks between the program's start and this process.
std::atomic<unsigned> generation{0};

unsigned Generation() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
    (void)registered;
    return generation.load(std::memory_order_relaxed);
}

char *AppendVarint(char *out, uint64_t v) {
    for (; v >= 0x80; v >>= 7)
        *out++ = static_cast<char>(v | 0x80);
    *out++ = static_cast<char>(v);
    return out;
}

// engineswap itself has an engine more, which is nothing for RocksDB.
rdb::IOStatus CheckName(const std::string &name) {
    static const char *const kValid = "valid: auto, posix, libaio, io_uring";
    if (name.empty() || name == "auto" || name == "posix" || name == "libaio" || name == "io_uring")
        return rdb::IOStatus::OK();
    // The names of files are RocksDB's own, on the real file system: an engine must have its files there too.
    if (name == "sim")
        return rdb::IOStatus::InvalidArgument(std::string("the engine 'sim' has no files that RocksDB could find; ") +
                                              kValid);
    return rdb::IOStatus::InvalidArgument("unknown engine '" + name + "'; " + kValid);
}

// An engine's URI: its name, and the options that the library cannot know to do nothing here.
rdb::IOStatus Check(const std::string &uri) {
    // A MultiRead waits for all of its reads, asynchronous reads and writes are waited for one at a time: there is no
    // wait for a group beyond what was asked for.
    if (uri.find("min_wait_us=") != std::string::npos)
        return rdb::IOStatus::InvalidArgument(
            "'min_wait_us' would do nothing here: RocksDB waits for exactly what it needs; leave it out");
    // Where completions are polled for, it says how many a poll looks for.
    if (uri.find("reap=") != std::string::npos && uri.find("iopoll") == std::string::npos)
        return rdb::IOStatus::InvalidArgument(
            "'reap' would do nothing here without 'iopoll': RocksDB waits for exactly what it needs; leave it out");
    return CheckName(uri.substr(0, uri.find('?')));
}

} // namespace

Engine::Engine(engineswap_engine *handle) : handle_(handle), generation_(Generation()), queues_(handle) {}

rdb::IOStatus Engine::Open(const std::string &uri, std::shared_ptr<Engine> *out) {
    engineswap_engine *handle = nullptr;
    engineswap_error err;
    rdb::IOStatus s = Check(uri);
    if (!s.ok())
        return s;
    // Nothing here registers memory: RocksDB brings its own buffers, others each time.
    if (engineswap_open_for(uri.c_str(), 0, &handle, &err) != ENGINESWAP_OK)
        return StatusOfEngine(err);
    out->reset(new Engine(handle));
    // The variable ENGINESWAP may have named it.
    s = Check(engineswap_engine_uri(handle));
    if (!s.ok())
        out->reset();
    return s;
}

bool Engine::Polls() const {
    return std::string(engineswap_engine_uri(handle_)).find("&iopoll") != std::string::npos;
}

bool Engine::IsOurs() const {
    return generation_ == Generation();
}

Engine::~Engine() {
    // A child leaves the parent's engine alone; its memory goes with the process.
    if (IsOurs())
        engineswap_close(handle_); // The queues keep what they need of it.
    else
        queues_.Forget();
}

File::File(std::shared_ptr<Engine> engine, engineswap_file *handle, std::string path)
    : engine_(std::move(engine)), handle_(handle), path_(std::move(path)) {
    uint32_t memory = 1, offset = 1;
    engineswap_file_alignment(handle_, &memory, &offset, nullptr);
    // Stock RocksDB says a page for buffered files.
    alignment_ = is_direct() ? std::max({memory, offset, uint32_t{512}}) : rdb::kDefaultPageSize;
}

rdb::IOStatus File::Open(const std::shared_ptr<Engine> &engine, const std::string &path, uint32_t flags,
                         bool keep_on_exec, std::unique_ptr<File> *out) {
    engineswap_file *handle = nullptr;
    engineswap_error err;
    if (engineswap_file_open(engine->handle(), path.c_str(), flags, &handle, &err) != ENGINESWAP_OK)
        return StatusOf(err);
    out->reset(new File(engine, handle, path));
    if (keep_on_exec)
        fcntl((*out)->fd(), F_SETFD, 0);
    return rdb::IOStatus::OK();
}

File::~File() {
    if (engine_->IsOurs())
        engineswap_file_close(handle_);
    else
        // Another thread may have held the library's locks at fork(); the handle's memory goes with the process.
        close(fd());
}

rdb::IOStatus File::Read(uint64_t offset, size_t n, rdb::Slice *result, char *scratch, Purpose purpose) const {
    size_t done = 0;
    engineswap_error err;
    if (engineswap_file_read(handle_, scratch, n, offset, purpose, &done, &err) != ENGINESWAP_OK) {
        *result = rdb::Slice(scratch, 0);
        return StatusOf(err);
    }
    *result = rdb::Slice(scratch, done);
    return rdb::IOStatus::OK();
}

rdb::IOStatus File::Write(uint64_t offset, const rdb::Slice &data, Purpose purpose) const {
    engineswap_error err;
    if (engineswap_file_write(handle_, data.data(), data.size(), offset, purpose, &err) != ENGINESWAP_OK)
        return StatusOf(err);
    return rdb::IOStatus::OK();
}

rdb::IOStatus File::SyncData(Purpose purpose) const {
    engineswap_error err;
    return engineswap_file_sync_data(handle_, purpose, &err) == ENGINESWAP_OK ? rdb::IOStatus::OK() : StatusOf(err);
}

rdb::IOStatus File::SyncAll(Purpose purpose) const {
    engineswap_error err;
    return engineswap_file_sync_all(handle_, purpose, &err) == ENGINESWAP_OK ? rdb::IOStatus::OK() : StatusOf(err);
}

rdb::IOStatus File::FlushDescriptor() const {
    const int copy = fcntl(fd(), F_DUPFD_CLOEXEC, 3);
    // Without a free descriptor nothing can be asked.
    if (copy < 0 || close(copy) == 0)
        return rdb::IOStatus::OK();
    const int err = errno;
    // The descriptor is gone; only the call was interrupted.
    return err == EINTR ? rdb::IOStatus::OK() : StatusOfErrno(err, "close " + path_);
}

size_t File::UniqueId(char *id, size_t max_size) const {
    constexpr size_t kMaxVarint = 10;
    struct stat st;
    long version = 0;
    if (max_size < 3 * kMaxVarint || fstat(fd(), &st) != 0 || ioctl(fd(), FS_IOC_GETVERSION, &version) != 0)
        return 0;
    char *end = AppendVarint(id, st.st_dev);
    end = AppendVarint(end, st.st_ino);
    end = AppendVarint(end, static_cast<uint64_t>(version));
    return static_cast<size_t>(end - id);
}

rdb::IOStatus File::DropCache(size_t offset, size_t length) const {
    if (is_direct())
        return rdb::IOStatus::OK();
    const int err = posix_fadvise(fd(), static_cast<off_t>(offset), static_cast<off_t>(length), POSIX_FADV_DONTNEED);
    return err == 0 ? rdb::IOStatus::OK() : StatusOfErrno(err, "drop cached pages of " + path_);
}

void CheckMemory(const engineswap_completion &done, const File &file) {
    if ((done.flags & ENGINESWAP_BUFFER_HELD) == 0)
        return;
    fprintf(stderr, "engineswap: the I/O queue failed with reads in flight: %s\n", file.path().c_str());
    abort();
}

} // namespace engineswap
