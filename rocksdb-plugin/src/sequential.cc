// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A file that is read from its beginning to its end, by one thread at a time: the log at recovery, the manifest,
// CURRENT, options. The end is not remembered, so that a file that is still being written can be followed.

#include <utility>

#include "files.h"

namespace engineswap {

namespace {

class SequentialFile : public rdb::FSSequentialFile {
  public:
    SequentialFile(std::unique_ptr<File> file, Purpose purpose) : file_(std::move(file)), purpose_(purpose) {}

    rdb::IOStatus Read(size_t n, const rdb::IOOptions &, rdb::Slice *result, char *scratch,
                       rdb::IODebugContext *) override {
        rdb::IOStatus s = file_->Read(offset_, n, result, scratch, purpose_);
        offset_ += result->size();
        return s;
    }

    // Beyond the end there is nothing to read, which is what RocksDB asks for.
    rdb::IOStatus Skip(uint64_t n) override {
        offset_ += n;
        return rdb::IOStatus::OK();
    }

    rdb::IOStatus PositionedRead(uint64_t offset, size_t n, const rdb::IOOptions &, rdb::Slice *result, char *scratch,
                                 rdb::IODebugContext *) override {
        return file_->Read(offset, n, result, scratch, purpose_);
    }

    bool use_direct_io() const override { return file_->is_direct(); }
    size_t GetRequiredBufferAlignment() const override { return file_->alignment(); }
    rdb::IOStatus InvalidateCache(size_t offset, size_t length) override { return file_->DropCache(offset, length); }

  private:
    const std::unique_ptr<File> file_;
    const Purpose purpose_;
    uint64_t offset_ = 0;
};

} // namespace

std::unique_ptr<rdb::FSSequentialFile> MakeSequentialFile(std::unique_ptr<File> file, Purpose purpose) {
    return std::make_unique<SequentialFile>(std::move(file), purpose);
}

} // namespace engineswap
