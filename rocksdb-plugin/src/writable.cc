// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A file that is appended to: the log, the manifest, tables.
//
// Appends through the page cache are plain writes at the known end of the file. They never go to a queue: the kernel
// hands a buffered write of a ring to a worker thread, which copies it with cold caches and costs two switches. Order
// is kept because each is done when it returns, and a failed one can be repeated at the same place.
//
// Direct writes of a table go on behind the writer (behind.h). They are done when Sync, Fsync, RangeSync, Truncate or
// Close returns. Flush does not wait for them, unlike for other files: RocksDB calls it after each buffer, and nobody
// looks into a table before it is synced and closed. Any of these calls, and the next write, returns their errors.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <utility>

#include "behind.h"
#include "files.h"
#include "status.h"

namespace engineswap {

namespace {

class WritableFile : public rdb::FSWritableFile {
  public:
    WritableFile(std::unique_ptr<File> file, const rdb::FileOptions &options, uint64_t size, bool sealed,
                 Purpose purpose)
        : rdb::FSWritableFile(options),
          file_(std::move(file)),
          purpose_(purpose),
          allow_fallocate_(options.allow_fallocate),
          keep_size_(options.fallocate_with_keep_size),
          direct_(file_->is_direct()),
          alignment_(file_->alignment()),
          size_(size) {
        // A file that is appended to again may have readers, who must not see it longer than it is.
        if (direct_ && sealed && size == 0)
            behind_ = std::make_unique<WriteBehind>(*file_, allow_fallocate_, purpose_);
    }

    ~WritableFile() override {
        if (file_)
            WritableFile::Close(rdb::IOOptions(), nullptr).PermitUncheckedError();
    }

    using rdb::FSWritableFile::Append;
    using rdb::FSWritableFile::PositionedAppend;

    rdb::IOStatus Append(const rdb::Slice &data, const rdb::IOOptions &, rdb::IODebugContext *) override {
        return Write(data, size_);
    }

    rdb::IOStatus PositionedAppend(const rdb::Slice &data, uint64_t offset, const rdb::IOOptions &,
                                   rdb::IODebugContext *) override {
        return Write(data, offset);
    }

    rdb::IOStatus PositionedAppend(const rdb::Slice &data, uint64_t offset, const rdb::IOOptions &,
                                   const rdb::DataVerificationInfo &, rdb::IODebugContext *) override {
        return Write(data, offset);
    }

    rdb::IOStatus Truncate(uint64_t size, const rdb::IOOptions &, rdb::IODebugContext *) override {
        if (!file_)
            return Closed();
        rdb::IOStatus s = Drain();
        engineswap_error err;
        if (s.ok() && engineswap_file_set_len(file_->handle(), size, &err) != ENGINESWAP_OK)
            s = StatusOf(err);
        if (!s.ok())
            return s;
        size_ = size;
        if (behind_)
            behind_->Truncated(size);
        return s;
    }

    rdb::IOStatus Close(const rdb::IOOptions &, rdb::IODebugContext *) override {
        if (!file_)
            return Closed();
        rdb::IOStatus s = Drain();
        GiveBackSpace();
        if (s.ok())
            s = file_->FlushDescriptor();
        behind_.reset();
        file_.reset();
        return s;
    }

    rdb::IOStatus Flush(const rdb::IOOptions &, rdb::IODebugContext *) override {
        if (!file_)
            return Closed();
        return behind_ ? behind_->Check() : rdb::IOStatus::OK();
    }

    rdb::IOStatus Sync(const rdb::IOOptions &, rdb::IODebugContext *) override {
        if (!file_)
            return Closed();
        rdb::IOStatus s = Drain();
        return s.ok() ? file_->SyncData(purpose_) : s;
    }

    rdb::IOStatus Fsync(const rdb::IOOptions &, rdb::IODebugContext *) override {
        if (!file_)
            return Closed();
        rdb::IOStatus s = Drain();
        return s.ok() ? file_->SyncAll(purpose_) : s;
    }

    // A sync touches nothing that appends change, or (behind.h) takes turns with them.
    bool IsSyncThreadSafe() const override { return true; }

    // Starts write-back and does not wait for it, except, if asked to be strict, for what was started before.
    rdb::IOStatus RangeSync(uint64_t offset, uint64_t nbytes, const rdb::IOOptions &options,
                            rdb::IODebugContext *dbg) override {
        if (!file_)
            return Closed();
        rdb::IOStatus s = Drain();
        if (!s.ok())
            return s;
        if (!CanStartWriteBack())
            return rdb::FSWritableFile::RangeSync(offset, nbytes, options, dbg);
        engineswap_error err;
        const int32_t code = strict_bytes_per_sync_
                                 ? engineswap_file_start_write_back(file_->handle(), 0, offset + nbytes,
                                                                    ENGINESWAP_WAIT_BEFORE, purpose_, &err)
                                 : engineswap_file_start_write_back(file_->handle(), offset, nbytes, 0, purpose_, &err);
        return code == ENGINESWAP_OK ? s : StatusOf(err);
    }

    rdb::IOStatus Allocate(uint64_t offset, uint64_t len, const rdb::IOOptions &, rdb::IODebugContext *) override {
        if (!file_)
            return Closed();
        if (!allow_fallocate_)
            return rdb::IOStatus::OK();
        const int mode = keep_size_ && !behind_ ? FALLOC_FL_KEEP_SIZE : 0;
        if (fallocate(file_->fd(), mode, static_cast<off_t>(offset), static_cast<off_t>(len)) != 0)
            return StatusOfErrno(errno, "allocate " + std::to_string(len) + " bytes of " + file_->path());
        if (behind_)
            behind_->Allocated(offset, len);
        return rdb::IOStatus::OK();
    }

    uint64_t GetFileSize(const rdb::IOOptions &, rdb::IODebugContext *) override { return size_; }
    bool use_direct_io() const override { return direct_; }
    size_t GetRequiredBufferAlignment() const override { return alignment_; }
    size_t GetUniqueId(char *id, size_t max_size) const override { return file_ ? file_->UniqueId(id, max_size) : 0; }

    rdb::IOStatus InvalidateCache(size_t offset, size_t length) override {
        return file_ ? file_->DropCache(offset, length) : Closed();
    }

    void SetWriteLifeTimeHint(rdb::Env::WriteLifeTimeHint hint) override {
        uint64_t value = hint;
        if (hint != write_hint_ && file_ && fcntl(file_->fd(), F_SET_RW_HINT, &value) == 0)
            write_hint_ = hint;
    }

  private:
    static rdb::IOStatus Closed() { return rdb::IOStatus::IOError("the file is closed"); }

    rdb::IOStatus Write(const rdb::Slice &data, uint64_t offset) {
        if (!file_)
            return Closed();
        rdb::IOStatus s = behind_ ? behind_->Write(data, offset) : file_->Write(offset, data, purpose_);
        if (s.ok())
            size_ = offset + data.size();
        return s;
    }

    // As in stock: where the system call is missing, and on ZFS, where it does nothing, a strict range sync is a sync.
    bool CanStartWriteBack() {
        constexpr unsigned long kZfs = 0x2fc12fc1;
        if (!write_back_known_) {
            struct statfs fs;
            const bool zfs = fstatfs(file_->fd(), &fs) == 0 && static_cast<unsigned long>(fs.f_type) == kZfs;
            can_write_back_ = !zfs && (sync_file_range(file_->fd(), 0, 0, 0) == 0 || errno != ENOSYS);
            write_back_known_ = true;
        }
        return can_write_back_;
    }

    rdb::IOStatus Drain() { return behind_ ? behind_->Drain() : rdb::IOStatus::OK(); }

    // What was allocated ahead and not written. Failure costs space, never data, so it is not reported.
    void GiveBackSpace() {
        size_t block, last;
        GetPreallocationStatus(&block, &last);
        if (last == 0 && !(behind_ && behind_->IsLonger()))
            return;
        const int fd = file_->fd();
        if (engineswap_file_set_len(file_->handle(), size_, nullptr) != ENGINESWAP_OK)
            return;
        struct stat st;
        const uint64_t allocated = uint64_t{block} * last;
        if (!allow_fallocate_ || allocated <= size_ || fstat(fd, &st) != 0)
            return;
        // Some file systems keep the blocks beyond the end when the size does not change.
        const auto unit = static_cast<uint64_t>(st.st_blksize);
        if ((size_ + unit - 1) / unit < static_cast<uint64_t>(st.st_blocks) / (unit / 512))
            (void)fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, static_cast<off_t>(size_),
                            static_cast<off_t>(allocated - size_));
    }

    std::unique_ptr<File> file_;
    std::unique_ptr<WriteBehind> behind_; // of direct tables
    const Purpose purpose_;
    const bool allow_fallocate_, keep_size_, direct_;
    const size_t alignment_;
    uint64_t size_;
    bool write_back_known_ = false, can_write_back_ = true; // of RangeSync
};

} // namespace

std::unique_ptr<rdb::FSWritableFile> MakeWritableFile(std::unique_ptr<File> file, const rdb::FileOptions &options,
                                                      uint64_t size, bool sealed, Purpose purpose) {
    return std::make_unique<WritableFile>(std::move(file), options, size, sealed, purpose);
}

} // namespace engineswap
