// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A file that is read and written at any place: RocksDB uses it to change a few bytes of an external table that it
// takes in. Everything is done when a call returns.

#include <utility>

#include "files.h"

namespace engineswap {

namespace {

class RandomRWFile : public rdb::FSRandomRWFile {
  public:
    explicit RandomRWFile(std::unique_ptr<File> file) : file_(std::move(file)) {}

    rdb::IOStatus Write(uint64_t offset, const rdb::Slice &data, const rdb::IOOptions &,
                        rdb::IODebugContext *) override {
        return file_ ? file_->Write(offset, data, kOther) : Closed();
    }

    rdb::IOStatus Read(uint64_t offset, size_t n, const rdb::IOOptions &, rdb::Slice *result, char *scratch,
                       rdb::IODebugContext *) const override {
        return file_ ? file_->Read(offset, n, result, scratch, kOther) : Closed();
    }

    rdb::IOStatus Flush(const rdb::IOOptions &, rdb::IODebugContext *) override {
        return file_ ? rdb::IOStatus::OK() : Closed();
    }

    rdb::IOStatus Sync(const rdb::IOOptions &, rdb::IODebugContext *) override {
        return file_ ? file_->SyncData(kOther) : Closed();
    }

    rdb::IOStatus Fsync(const rdb::IOOptions &, rdb::IODebugContext *) override {
        return file_ ? file_->SyncAll(kOther) : Closed();
    }

    rdb::IOStatus Close(const rdb::IOOptions &, rdb::IODebugContext *) override {
        if (!file_)
            return Closed();
        file_.reset();
        return rdb::IOStatus::OK();
    }

  private:
    static rdb::IOStatus Closed() { return rdb::IOStatus::IOError("the file is closed"); }

    std::unique_ptr<File> file_;
};

} // namespace

std::unique_ptr<rdb::FSRandomRWFile> MakeRandomRWFile(std::unique_ptr<File> file) {
    return std::make_unique<RandomRWFile>(std::move(file));
}

} // namespace engineswap
