// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A directory whose entries are made durable. On btrfs some of that is not needed, or asks for another call, which the
// stock file system knows too.

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "files.h"
#include "status.h"

namespace engineswap {

namespace {

class Directory : public rdb::FSDirectory {
  public:
    Directory(std::shared_ptr<Engine> engine, std::string path, bool is_btrfs)
        : engine_(std::move(engine)), path_(std::move(path)), is_btrfs_(is_btrfs) {}

    rdb::IOStatus Fsync(const rdb::IOOptions &options, rdb::IODebugContext *dbg) override {
        return FsyncWithDirOptions(options, dbg, rdb::DirFsyncOptions());
    }

    rdb::IOStatus FsyncWithDirOptions(const rdb::IOOptions &, rdb::IODebugContext *,
                                      const rdb::DirFsyncOptions &how) override {
        engineswap_error err;
        if (is_btrfs_ && how.reason == rdb::DirFsyncOptions::kNewFileSynced)
            return rdb::IOStatus::OK(); // The sync of a new file covers its name.
        if (is_btrfs_ && how.reason == rdb::DirFsyncOptions::kFileRenamed) {
            std::unique_ptr<File> file;
            rdb::IOStatus s = File::Open(engine_, how.renamed_new_name, ENGINESWAP_READ, false, &file);
            return s.ok() ? file->SyncAll(kOther) : s;
        }
        if (engineswap_sync_dir(engine_->handle(), path_.c_str(), &err) != ENGINESWAP_OK)
            return StatusOf(err);
        return rdb::IOStatus::OK();
    }

    rdb::IOStatus Close(const rdb::IOOptions &, rdb::IODebugContext *) override { return rdb::IOStatus::OK(); }

  private:
    const std::shared_ptr<Engine> engine_;
    const std::string path_;
    const bool is_btrfs_;
};

} // namespace

rdb::IOStatus MakeDirectory(const std::shared_ptr<Engine> &engine, const std::string &path,
                            std::unique_ptr<rdb::FSDirectory> *out) {
    struct statfs fs;
    int failed;
    do
        failed = statfs(path.c_str(), &fs);
    while (failed != 0 && errno == EINTR);
    if (failed != 0)
        return StatusOfErrno(errno, "open directory " + path);
    const bool is_btrfs = static_cast<unsigned long>(fs.f_type) == BTRFS_SUPER_MAGIC;
    *out = std::make_unique<Directory>(engine, path, is_btrfs);
    return rdb::IOStatus::OK();
}

} // namespace engineswap
