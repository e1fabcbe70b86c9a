// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The file system: which engine serves which file.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine.h"
#include "uri.h"
#include "version.h"

namespace engineswap {

class FileSystem : public rdb::FileSystemWrapper {
  public:
    // Opens the engines that the URI names. InvalidArgument or NotSupported say what is wrong and what would do.
    static rdb::IOStatus Create(const std::string &uri, std::unique_ptr<rdb::FileSystem> *out);

    static const char *kClassName() { return Uri::kScheme; }
    const char *Name() const override { return kClassName(); }
    // The whole URI, so that OPTIONS files and comparisons carry the choice.
    std::string GetId() const override { return id_; }
    // As "id=...", because the URI may have an equals sign, which RocksDB would take for an option's.
    std::string SerializeOptions(const rdb::ConfigOptions &config, const std::string &header) const override;

    rdb::IOStatus NewSequentialFile(const std::string &name, const rdb::FileOptions &options,
                                    std::unique_ptr<rdb::FSSequentialFile> *out, rdb::IODebugContext *dbg) override;
    rdb::IOStatus NewRandomAccessFile(const std::string &name, const rdb::FileOptions &options,
                                      std::unique_ptr<rdb::FSRandomAccessFile> *out, rdb::IODebugContext *dbg) override;
    rdb::IOStatus NewWritableFile(const std::string &name, const rdb::FileOptions &options,
                                  std::unique_ptr<rdb::FSWritableFile> *out, rdb::IODebugContext *dbg) override;
    rdb::IOStatus ReopenWritableFile(const std::string &name, const rdb::FileOptions &options,
                                     std::unique_ptr<rdb::FSWritableFile> *out, rdb::IODebugContext *dbg) override;
    rdb::IOStatus ReuseWritableFile(const std::string &name, const std::string &old_name,
                                    const rdb::FileOptions &options, std::unique_ptr<rdb::FSWritableFile> *out,
                                    rdb::IODebugContext *dbg) override;
    rdb::IOStatus NewRandomRWFile(const std::string &name, const rdb::FileOptions &options,
                                  std::unique_ptr<rdb::FSRandomRWFile> *out, rdb::IODebugContext *dbg) override;
    rdb::IOStatus NewDirectory(const std::string &name, const rdb::IOOptions &options,
                               std::unique_ptr<rdb::FSDirectory> *out, rdb::IODebugContext *dbg) override;

    rdb::IOStatus Poll(std::vector<void *> &handles, size_t min_completions) override;
    rdb::IOStatus AbortIO(std::vector<void *> &handles) override;
#if ENGINESWAP_HAS_SUPPORTED_OPS
    void SupportedOps(int64_t &supported) override;
#endif

  private:
    using Engines = std::array<std::shared_ptr<Engine>, kRoles>;

    FileSystem(Uri uri, std::string id, Engines engines);

    static rdb::IOStatus OpenEngines(const Uri &uri, Engines *out);
    // The engine of a role; in a child after fork() one of its own.
    rdb::IOStatus EngineOf(Role role, std::shared_ptr<Engine> *out);
    rdb::IOStatus OpenFile(const std::string &name, bool to_write, const rdb::FileOptions &options, uint32_t flags,
                           std::unique_ptr<File> *out);

    const Uri uri_;
    const std::string id_;
    std::mutex mutex_;
    Engines engines_;          // under mutex_
    rdb::IOStatus not_polled_; // under mutex_: why a device cannot be polled, once that is known
};

} // namespace engineswap
