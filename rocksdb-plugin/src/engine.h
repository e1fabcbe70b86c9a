// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Engines and files of the C interface with their owners, and what happens to them in a child after fork().
//
// A child must not touch the rings of its parent. Engines remember the process that opened them: in a child, files
// that were opened before do plain system calls on their descriptors, and nothing of theirs goes to a queue.
#pragma once

#include <memory>
#include <string>

#include <engineswap.h>
#include <rocksdb/io_status.h>

#include "queue.h"
#include "version.h"

namespace engineswap {

// What each kind of access is counted as (engineswap's opaque purpose, 0 to 15).
enum Purpose : uint32_t {
    kOther = 0,
    kWalWrite = 1,
    kWalRead = 2,
    kTableWrite = 3,
    kTableRead = 4,
    kTableMultiRead = 5,
    kTableReadAhead = 6,
    kManifest = 7,
};

class Engine {
  public:
    // `uri` is in engineswap's notation; empty or "auto" for the best that works here.
    static rdb::IOStatus Open(const std::string &uri, std::shared_ptr<Engine> *out);
    ~Engine();
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    engineswap_engine *handle() const { return handle_; }
    // False in a child of the process that opened it.
    bool IsOurs() const;
    // Whether it polls for completions (iopoll).
    bool Polls() const;
    // For what goes on after a call has returned.
    Queues *queues() { return &queues_; }

  private:
    explicit Engine(engineswap_engine *handle);

    engineswap_engine *const handle_;
    const unsigned generation_;
    Queues queues_;
};

// An open file and the engine that it came from.
class File {
  public:
    // `flags` as of engineswap_file_open. `keep_on_exec` leaves the descriptor open in programs that are executed.
    static rdb::IOStatus Open(const std::shared_ptr<Engine> &engine, const std::string &path, uint32_t flags,
                              bool keep_on_exec, std::unique_ptr<File> *out);
    ~File();
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    engineswap_file *handle() const { return handle_; }
    const std::shared_ptr<Engine> &engine() const { return engine_; }
    const std::string &path() const { return path_; }
    int fd() const { return engineswap_file_fd(handle_); }
    bool is_direct() const { return engineswap_file_is_direct(handle_) == 1; }
    // What addresses, offsets and lengths of direct I/O must be multiples of, as RocksDB asks for it: one number.
    size_t alignment() const { return alignment_; }

    // Reads until `n` bytes are there or the file ends.
    rdb::IOStatus Read(uint64_t offset, size_t n, rdb::Slice *result, char *scratch, Purpose purpose) const;
    // Writes all of it.
    rdb::IOStatus Write(uint64_t offset, const rdb::Slice &data, Purpose purpose) const;
    // fdatasync and fsync. The first failure is final for this file.
    rdb::IOStatus SyncData(Purpose purpose) const;
    rdb::IOStatus SyncAll(Purpose purpose) const;
    // What close() would say: network file systems tell there that data they had taken cannot be written.
    rdb::IOStatus FlushDescriptor() const;

    // RocksDB's identity of a file for its caches: device, inode and generation; 0 if the file system has none.
    size_t UniqueId(char *id, size_t max_size) const;
    // Drops clean pages of the range from the page cache; a length of 0 means to the end.
    rdb::IOStatus DropCache(size_t offset, size_t length) const;

  private:
    File(std::shared_ptr<Engine> engine, engineswap_file *handle, std::string path);

    const std::shared_ptr<Engine> engine_;
    engineswap_file *const handle_;
    const std::string path_;
    size_t alignment_;
};

// Ends the process if the kernel may still write into memory that is RocksDB's, which is about to use it for something
// else. Nothing that could be returned would make that safe; RocksDB's own file system stops here too.
void CheckMemory(const engineswap_completion &done, const File &file);

} // namespace engineswap
