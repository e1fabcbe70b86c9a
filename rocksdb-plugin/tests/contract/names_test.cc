// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Names, directories, locks; errors that RocksDB tells apart; the URI and what becomes of it in options.
#include <rocksdb/db.h>
#include <rocksdb/utilities/options_util.h>

#include <algorithm>

#include <sys/wait.h>

#include "support.h"

namespace contract {

// RocksDB 11 opens into a unique_ptr, earlier versions into a plain pointer.
static Status OpenDatabase(const Options &o, const std::string &path, std::unique_ptr<DB> *db) {
#if ROCKSDB_MAJOR >= 11
    return DB::Open(o, path, db);
#else
    DB *raw = nullptr;
    Status s = DB::Open(o, path, &raw);
    db->reset(raw);
    return s;
#endif
}

class NamesTest : public FsTest {};

TEST_P(NamesTest, ErrorsAreThoseOfStock) {
    std::unique_ptr<FSSequentialFile> seq;
    std::unique_ptr<FSRandomAccessFile> random;
    std::unique_ptr<FSWritableFile> w;
    std::unique_ptr<FSDirectory> d;
    std::vector<std::string> children;
    std::vector<Env::FileAttributes> attributes;
    uint64_t n;
    bool b;
    std::string missing = Path("missing"), deep = Path("missing/dir/file"), file = Path("file");
    Spill(file, "x");
    std::string under = file + "/x";
    for (auto &name : {missing, deep, under}) {
        LikeStock("sequential", [&](FileSystem *any) { return any->NewSequentialFile(name, options, &seq, nullptr); });
        LikeStock("random", [&](FileSystem *any) { return any->NewRandomAccessFile(name, options, &random, nullptr); });
        LikeStock("delete", [&](FileSystem *any) { return any->DeleteFile(name, io, nullptr); });
        LikeStock("size", [&](FileSystem *any) { return any->GetFileSize(name, io, &n, nullptr); });
        LikeStock("time", [&](FileSystem *any) { return any->GetFileModificationTime(name, io, &n, nullptr); });
        LikeStock("exists", [&](FileSystem *any) { return any->FileExists(name, io, nullptr); });
        LikeStock("children", [&](FileSystem *any) { return any->GetChildren(name, io, &children, nullptr); });
        LikeStock("attributes",
                  [&](FileSystem *any) { return any->GetChildrenFileAttributes(name, io, &attributes, nullptr); });
        LikeStock("directory", [&](FileSystem *any) { return any->NewDirectory(name, io, &d, nullptr); });
        LikeStock("rename", [&](FileSystem *any) { return any->RenameFile(name, Path("to"), io, nullptr); });
        LikeStock("link", [&](FileSystem *any) { return any->LinkFile(name, Path("to"), io, nullptr); });
        LikeStock("links", [&](FileSystem *any) { return any->NumFileLinks(name, io, &n, nullptr); });
        LikeStock("same", [&](FileSystem *any) { return any->AreFilesSame(name, file, io, &b, nullptr); });
        LikeStock("truncate", [&](FileSystem *any) { return any->Truncate(name, 1, io, nullptr); });
        LikeStock("rmdir", [&](FileSystem *any) { return any->DeleteDir(name, io, nullptr); });
        LikeStock("is directory", [&](FileSystem *any) { return any->IsDirectory(name, io, &b, nullptr); });
    }
    for (auto &name : {deep, under, dir}) {
        LikeStock("writable", [&](FileSystem *any) { return any->NewWritableFile(name, options, &w, nullptr); });
        LikeStock("mkdir", [&](FileSystem *any) { return any->CreateDir(name, io, nullptr); });
    }
    // Here the kernel refuses O_DIRECT.
    FileOptions direct = options;
    direct.use_direct_reads = true;
    LikeStock("direct",
              [&](FileSystem *any) { return any->NewRandomAccessFile("/proc/self/status", direct, &random, nullptr); });
    LikeStock("mkdir over a file", [&](FileSystem *any) { return any->CreateDirIfMissing(file, io, nullptr); });
    LikeStock("directory of a file", [&](FileSystem *any) { return any->NewDirectory(file, io, &d, nullptr); });
}

TEST_P(NamesTest, DirectoriesAndNames) {
    OK(fs->CreateDir(Path("a"), io, nullptr));
    OK(fs->CreateDirIfMissing(Path("a"), io, nullptr));
    OK(fs->CreateDirIfMissing(Path("a/b"), io, nullptr));
    bool is_dir = false;
    OK(fs->IsDirectory(Path("a"), io, &is_dir, nullptr));
    EXPECT_TRUE(is_dir);
    Spill(Path("a/one"), "1234");
    Spill(Path("a/two"), "12345678");
    std::vector<std::string> names;
    OK(fs->GetChildren(Path("a"), io, &names, nullptr));
    std::vector<std::string> own;
    OK(stock->GetChildren(Path("a"), io, &own, nullptr));
    std::sort(names.begin(), names.end());
    std::sort(own.begin(), own.end());
    EXPECT_EQ(names, own);
    std::vector<Env::FileAttributes> attributes;
    OK(fs->GetChildrenFileAttributes(Path("a"), io, &attributes, nullptr));
    for (auto &a : attributes) {
        EXPECT_TRUE(a.name != "two" || a.size_bytes == 8u);
    }
    std::unique_ptr<FSDirectory> d;
    OK(fs->NewDirectory(Path("a"), io, &d, nullptr));
    OK(d->Fsync(io, nullptr));
    OK(d->FsyncWithDirOptions(io, nullptr, DirFsyncOptions(DirFsyncOptions::FsyncReason::kNewFileSynced)));
    OK(d->FsyncWithDirOptions(io, nullptr, DirFsyncOptions(Path("a/one"))));
    OK(d->Close(io, nullptr));
    uint64_t n = 0;
    OK(fs->LinkFile(Path("a/one"), Path("a/three"), io, nullptr));
    OK(fs->NumFileLinks(Path("a/one"), io, &n, nullptr));
    EXPECT_EQ(n, 2u);
    bool same = false;
    OK(fs->AreFilesSame(Path("a/one"), Path("a/three"), io, &same, nullptr));
    EXPECT_TRUE(same);
    OK(fs->RenameFile(Path("a/two"), Path("a/one"), io, nullptr));
    EXPECT_EQ(Slurp(Path("a/one")), "12345678");
    EXPECT_TRUE(fs->FileExists(Path("a/two"), io, nullptr).IsNotFound());
    OK(fs->GetFileSize(Path("a/one"), io, &n, nullptr));
    EXPECT_EQ(n, 8u);
    uint64_t now = time(nullptr);
    OK(fs->GetFileModificationTime(Path("a/one"), io, &n, nullptr));
    EXPECT_LE(n, now + 1);
    EXPECT_GE(n + 600, now);
    OK(fs->GetFreeSpace(Path("a"), io, &n, nullptr));
    EXPECT_GT(n, 0u);
    std::string absolute;
    OK(fs->GetAbsolutePath("x", io, &absolute, nullptr));
    EXPECT_EQ(absolute[0], '/');
    OK(fs->GetTestDirectory(io, &absolute, nullptr));
    EXPECT_FALSE(fs->DeleteDir(Path("a"), io, nullptr).ok());
    OK(fs->DeleteFile(Path("a/one"), io, nullptr));
    OK(fs->DeleteFile(Path("a/three"), io, nullptr));
    OK(fs->DeleteDir(Path("a/b"), io, nullptr));
    OK(fs->DeleteDir(Path("a"), io, nullptr));
}

TEST_P(NamesTest, AMappedBuffer) {
    Spill(Path("f"), Pattern(0, 2 * kPage));
    std::unique_ptr<MemoryMappedFileBuffer> map;
    OK(fs->NewMemoryMappedFileBuffer(Path("f"), &map));
    ASSERT_EQ(map->GetLen(), 2 * kPage);
    memcpy(map->GetBase(), "hello", 5);
    map.reset();
    EXPECT_EQ(Slurp(Path("f")).substr(0, 5), "hello");
}

TEST_P(NamesTest, LocksHoldAgainstThisProcessAndOthers) {
    FileLock *lock = nullptr;
    OK(fs->LockFile(Path("LOCK"), io, &lock, nullptr));
    FileLock *second = nullptr;
    EXPECT_FALSE(fs->LockFile(Path("LOCK"), io, &second, nullptr).ok());
    EXPECT_FALSE(stock->LockFile(Path("LOCK"), io, &second, nullptr).ok()) << "locks are shared with stock";
    std::string other = "python3 -c \"import fcntl; fcntl.lockf(open('" + Path("LOCK") +
                        "', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\" 2>/dev/null";
    if (system("python3 -c '' 2>/dev/null") == 0) {
        EXPECT_NE(system(other.c_str()), 0);
    }
    OK(fs->UnlockFile(lock, io, nullptr));
    OK(fs->LockFile(Path("LOCK"), io, &lock, nullptr));
    OK(fs->UnlockFile(lock, io, nullptr));
}

// A whole database: written with this file system, read with stock, written by it, read again.
TEST_P(NamesTest, ADatabaseGoesToAndFro) {
    std::unique_ptr<Env> env = NewCompositeEnv(fs), own = NewCompositeEnv(stock);
    Options o;
    o.create_if_missing = true;
    o.write_buffer_size = 256 << 10;
    o.target_file_size_base = 256 << 10;
    o.use_direct_reads = o.use_direct_io_for_flush_and_compaction = Direct();
    o.wal_recovery_mode = WALRecoveryMode::kAbsoluteConsistency;
    const int kKeys = 3000;
    auto key = [](int i) { return "key" + std::to_string(i * 7919 % 100000); };
    for (int round = 0; round < 4; round++) {
        o.env = round % 2 ? own.get() : env.get();
        std::unique_ptr<DB> db;
        OK(OpenDatabase(o, Path("db"), &db));
        std::string v;
        for (int i = 0; round && i < kKeys; i++) {
            OK(db->Get(ReadOptions(), key(i), &v));
            ASSERT_EQ(v, std::to_string(round - 1) + std::string(300, 'a' + i % 26));
        }
        for (int i = 0; i < kKeys; i++)
            OK(db->Put(WriteOptions(), key(i), std::to_string(round) + std::string(300, 'a' + i % 26)));
        if (round == 2)
            OK(db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
        std::vector<std::string> keys, values(50);
        std::vector<Slice> slices;
        for (int i = 0; i < 50; i++)
            keys.push_back(key(i * 11));
        for (auto &k : keys)
            slices.push_back(k);
        std::vector<PinnableSlice> pinned(50);
        std::vector<Status> status(50);
        ReadOptions ro;
#if ROCKSDB_MAJOR > 7 // scans of version 7.8 are not sound with it
        ro.async_io = true;
#endif
        ro.verify_checksums = true;
        db->MultiGet(ro, db->DefaultColumnFamily(), 50, slices.data(), pinned.data(), status.data());
        for (auto &s : status)
            OK(s);
        std::unique_ptr<Iterator> it(db->NewIterator(ro));
        int count = 0;
        for (it->SeekToFirst(); it->Valid(); it->Next())
            count++;
        OK(it->status());
        EXPECT_EQ(count, kKeys);
        it.reset();
        OK(db->VerifyChecksum());
        OK(db->Close());
    }
}

INSTANTIATE_TEST_SUITE_P(All, NamesTest, testing::ValuesIn(Params()), ParamName);

class Uri : public testing::Test {
  protected:
    static Status Make(const std::string &uri, std::shared_ptr<FileSystem> *fs) {
        return FileSystem::CreateFromString(ConfigOptions(), uri, fs);
    }
};

TEST_F(Uri, AWrongNameOrOptionIsRefusedWithTheList) {
    struct {
        const char *uri;
        std::vector<const char *> parts;
    } cases[] = {
        {"engineswap://nonsense", {"nonsense", "posix", "libaio", "io_uring"}},
        {"engineswap://io_uring?nonsense=1", {"nonsense", "depth", "sqpoll"}},
        {"engineswap://posix?nonsense", {"nonsense"}},
        {"engineswap://io_uring?depth=0", {"depth"}},
        {"engineswap://io_uring?depth=many", {"depth", "many"}},
        {"engineswap://posix?wal=nonsense", {"nonsense", "posix", "libaio", "io_uring"}},
        {"engineswap://posix?compaction=", {"compaction"}},
    };
    for (auto &c : cases) {
        std::shared_ptr<FileSystem> fs;
        Status s = Make(c.uri, &fs);
        EXPECT_TRUE(s.IsInvalidArgument()) << c.uri << ": " << s.ToString();
        for (auto part : c.parts)
            EXPECT_NE(s.ToString().find(part), std::string::npos) << c.uri << ": " << s.ToString();
        EXPECT_FALSE(fs) << c.uri;
    }
}

TEST_F(Uri, TheEnvironmentIsTheDefault) {
    std::shared_ptr<FileSystem> fs;
    setenv("ENGINESWAP", "posix", 1);
    OK(Make("engineswap://", &fs));
    setenv("ENGINESWAP", "nonsense", 1);
    fs.reset();
    EXPECT_TRUE(Make("engineswap://", &fs).IsInvalidArgument());
    unsetenv("ENGINESWAP");
    OK(Make("engineswap://", &fs));
}

// What an engine was asked for can be written down and asked for again, by itself and within an Env.
TEST_F(Uri, SettingsSurvive) {
    for (std::string uri : {"engineswap://posix", "engineswap://io_uring?depth=64",
                            "engineswap://io_uring?wal=posix&compaction=libaio"}) {
        std::shared_ptr<FileSystem> fs, again;
        Status s = Make(uri, &fs);
        if (s.IsNotSupported())
            continue;
        OK(s);
        ConfigOptions config;
        config.ignore_unsupported_options = config.ignore_unknown_options = false;
        std::string written = fs->ToString(config);
        EXPECT_NE(written.find(uri), std::string::npos) << written;
        OK(FileSystem::CreateFromString(config, written, &again));
        ASSERT_TRUE(again) << written;
        EXPECT_EQ(written, again->ToString(config));
        EXPECT_TRUE(fs->IsInstanceOf("engineswap") || std::string(fs->Name()).find("ngine") != std::string::npos)
            << fs->Name();

        std::unique_ptr<Env> env = NewCompositeEnv(fs);
        std::string env_written = env->ToString(config);
        std::shared_ptr<Env> guard;
        Env *made = Env::Default();
        OK(Env::CreateFromString(config, env_written, &made, &guard));
        EXPECT_EQ(written, made->GetFileSystem()->ToString(config)) << env_written;
        guard.reset();
        OK(Env::CreateFromUri(config, "", uri, &made, &guard));
        EXPECT_EQ(written, made->GetFileSystem()->ToString(config));
    }
}

// RocksDB does not write `env` into an OPTIONS file; a user may, and programs have --env_uri. The environment lives as
// long as the process, and one URI has one.
TEST_F(Uri, AnOptionsFileMayNameIt) {
    DBOptions base, got, again;
    ConfigOptions config;
    config.ignore_unsupported_options = false;
    OK(GetDBOptionsFromString(config, base, "env=engineswap://posix", &got));
    EXPECT_EQ(got.env->GetFileSystem()->GetId(), "engineswap://posix");
    OK(GetDBOptionsFromString(config, base, "env=engineswap://posix", &again));
    EXPECT_EQ(got.env, again.env);
    Status s = GetDBOptionsFromString(config, base, "env=engineswap://nonsense", &again);
    EXPECT_TRUE(s.IsInvalidArgument()) << s.ToString();
    EXPECT_NE(s.ToString().find("io_uring"), std::string::npos) << s.ToString();
}

} // namespace contract
