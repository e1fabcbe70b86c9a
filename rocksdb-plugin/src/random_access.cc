// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A table file that is read at any place by any thread.
//
// One read alone is a plain pread: there is nothing to overlap it with. The reads of one MultiRead go to the engine
// together, on a queue that the library keeps for the calling thread, and are waited for once. async.cc has ReadAsync.

#include <fcntl.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "async.h"
#include "files.h"
#include "status.h"

namespace engineswap {

namespace {

class RandomAccessFile : public rdb::FSRandomAccessFile {
  public:
    explicit RandomAccessFile(std::shared_ptr<File> file) : file_(std::move(file)) {}

    rdb::IOStatus Read(uint64_t offset, size_t n, const rdb::IOOptions &, rdb::Slice *result, char *scratch,
                       rdb::IODebugContext *) const override {
        return file_->Read(offset, n, result, scratch, kTableRead);
    }

    rdb::IOStatus MultiRead(rdb::FSReadRequest *reqs, size_t count, const rdb::IOOptions &options,
                            rdb::IODebugContext *dbg) override {
        if (count < 2 || !file_->engine()->IsOurs())
            return rdb::FSRandomAccessFile::MultiRead(reqs, count, options, dbg);
        std::vector<engineswap_op> ops(count);
        // What is not answered has failed.
        std::vector<engineswap_completion> done(count, engineswap_completion{0, ENGINESWAP_IO, 0, 0});
        for (size_t i = 0; i < count; i++) {
            ops[i].kind = ENGINESWAP_OP_READ;
            ops[i].file = file_->handle();
            ops[i].buffer = reqs[i].scratch;
            ops[i].offset = reqs[i].offset;
            ops[i].len = reqs[i].len;
            ops[i].user = i;
            ops[i].purpose = kTableMultiRead;
        }
        // Each request has its own status; the code that comes back is that of the first that failed.
        engineswap_run(file_->engine()->handle(), ops.data(), count, done.data(), nullptr);
        for (size_t i = 0; i < count; i++)
            Finish(done[i], &reqs[i]);
        return rdb::IOStatus::OK();
    }

    rdb::IOStatus ReadAsync(rdb::FSReadRequest &req, const rdb::IOOptions &, ReadAsyncCallback callback, void *arg,
                            void **handle, rdb::IOHandleDeleter *deleter, rdb::IODebugContext *) override {
        return StartRead(file_, req, std::move(callback), arg, handle, deleter);
    }

    rdb::IOStatus Prefetch(uint64_t offset, size_t n, const rdb::IOOptions &, rdb::IODebugContext *) override {
        if (file_->is_direct())
            return rdb::IOStatus::OK();
        if (readahead(file_->fd(), static_cast<off64_t>(offset), n) != 0)
            return StatusOfErrno(errno, "read ahead in " + file_->path());
        return rdb::IOStatus::OK();
    }

    void Hint(AccessPattern pattern) override {
        if (file_->is_direct())
            return;
        int advice = POSIX_FADV_NORMAL;
        switch (pattern) {
        case kNormal:
            break;
        case kRandom:
            advice = POSIX_FADV_RANDOM;
            break;
        case kSequential:
            advice = POSIX_FADV_SEQUENTIAL;
            break;
        case kWillNeed:
            advice = POSIX_FADV_WILLNEED;
            break;
        case kWontNeed:
            advice = POSIX_FADV_DONTNEED;
            break;
        }
        // A hint that is not taken changes nothing.
        (void)posix_fadvise(file_->fd(), 0, 0, advice);
    }

    // Only newer versions of RocksDB have this function.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winconsistent-missing-override"
#endif
    virtual rdb::IOStatus GetFileSize(uint64_t *size) {
        engineswap_error err;
        if (engineswap_file_len(file_->handle(), size, &err) == ENGINESWAP_OK)
            return rdb::IOStatus::OK();
        *size = 0;
        return StatusOf(err);
    }
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

    size_t GetUniqueId(char *id, size_t max_size) const override {
        return file_->UniqueId(id, max_size);
    }
    bool use_direct_io() const override {
        return file_->is_direct();
    }
    size_t GetRequiredBufferAlignment() const override {
        return file_->alignment();
    }
    rdb::IOStatus InvalidateCache(size_t offset, size_t length) override {
        return file_->DropCache(offset, length);
    }

  private:
    void Finish(const engineswap_completion &done, rdb::FSReadRequest *req) const {
        CheckMemory(done, *file_);
        if (done.result >= 0) {
            req->result = rdb::Slice(req->scratch, static_cast<size_t>(done.result));
            req->status = rdb::IOStatus::OK();
            return;
        }
        req->result = rdb::Slice(req->scratch, 0);
        req->status = StatusOf(done, "read " + std::to_string(req->len) + " bytes at offset " +
                                         std::to_string(req->offset) + " of " + file_->path());
    }

    const std::shared_ptr<File> file_;
};

} // namespace

std::unique_ptr<rdb::FSRandomAccessFile> MakeRandomAccessFile(std::unique_ptr<File> file) {
    return std::make_unique<RandomAccessFile>(std::move(file));
}

} // namespace engineswap
