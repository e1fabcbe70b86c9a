// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A small database under the plugin, for the tests of faults, kills, leaks, forks and exits:
//   store write URI DIR COUNT FLAGS   writes COUNT keys, each synced; DIR/../acked holds how many were acknowledged
//   store check URI DIR FLAGS         every acknowledged key is there; prints how many
//   store leaks URI DIR COUNT         opens files COUNT times and databases COUNT/20 times; no descriptor stays
//   store exit URI DIR HOW            leaves the process with the database or a file open: thread, static, return, quick
//   store fork URI DIR                forks with the database open; children exit, exec and use files of their own
// FLAGS: letters of d (direct reads, flushes and compactions), r (recycles logs), m (manual flush of the log), p
// (pipelined writes), or "-". URI: "" for RocksDB's own file system.
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/options.h>
#include <rocksdb/version.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace rocksdb;

namespace {

[[noreturn]] void Die(const std::string &why) {
    fprintf(stderr, "%s\n", why.c_str());
    _exit(2);
}

void Ok(const Status &s, const char *what) {
    if (!s.ok())
        Die(std::string(what) + ": " + s.ToString());
}

std::shared_ptr<FileSystem> MakeFs(const std::string &uri) {
    if (uri.empty())
        return FileSystem::Default();
    std::shared_ptr<FileSystem> fs;
    Status s = FileSystem::CreateFromString(ConfigOptions(), uri, &fs);
    if (s.IsNotSupported()) {
        printf("skipped: %s\n", s.ToString().c_str());
        fflush(stdout);
        _exit(0);
    }
    Ok(s, "file system");
    return fs;
}

std::string Key(uint64_t i) {
    char buf[32];
    snprintf(buf, sizeof buf, "%012llu", static_cast<unsigned long long>(i * 2654435761u % 1000000007u));
    return buf;
}

std::string Value(uint64_t i) {
    return std::to_string(i) + std::string(500 + i % 700, static_cast<char>('a' + i % 26));
}

Options MakeOptions(Env *env, const std::string &flags) {
    Options o;
    o.env = env;
    o.create_if_missing = true;
    o.write_buffer_size = 128 << 10;
    o.target_file_size_base = 128 << 10;
    o.max_bytes_for_level_base = 512 << 10;
    o.level0_file_num_compaction_trigger = 2;
    o.compression = kNoCompression;
    o.bytes_per_sync = 64 << 10;
    bool direct = flags.find('d') != std::string::npos;
    o.use_direct_reads = o.use_direct_io_for_flush_and_compaction = direct;
    if (flags.find('r') != std::string::npos)
        o.recycle_log_file_num = 2;
    if (flags.find('m') != std::string::npos)
        o.manual_wal_flush = true;
    if (flags.find('p') != std::string::npos)
        o.enable_pipelined_write = true;
    return o;
}

// How many writes were acknowledged: in shared memory, so that no system call stands between and a kill loses nothing.
std::atomic<uint64_t> *Acked(const std::string &dir) {
    std::string path = dir.substr(0, dir.rfind('/')) + "/acked";
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        Die("acked");
    void *p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        Die("mmap");
    close(fd);
    return static_cast<std::atomic<uint64_t> *>(p);
}

// RocksDB 11 opens into a unique_ptr, earlier versions into a plain pointer.
Status OpenDatabase(const Options &o, const std::string &path, std::unique_ptr<DB> *db) {
#if ROCKSDB_MAJOR >= 11
    return DB::Open(o, path, db);
#else
    DB *raw = nullptr;
    Status s = DB::Open(o, path, &raw);
    db->reset(raw);
    return s;
#endif
}

std::unique_ptr<DB> OpenDb(const Options &o, const std::string &dir) {
    std::unique_ptr<DB> db;
    Ok(OpenDatabase(o, dir, &db), "open");
    return db;
}

int Write(const std::string &uri, const std::string &dir, uint64_t count, const std::string &flags) {
    auto acked = Acked(dir);
    auto env = NewCompositeEnv(MakeFs(uri));
    Options o = MakeOptions(env.get(), flags);
    std::unique_ptr<DB> db;
    Status s = OpenDatabase(o, dir, &db);
    if (s.ok()) {
        WriteOptions sync;
        sync.sync = true;
        uint64_t from = acked->load();
        for (uint64_t i = from; i < from + count; i++) {
            if (o.manual_wal_flush) {
                s = db->Put(WriteOptions(), Key(i), Value(i));
                if (s.ok())
                    s = db->FlushWAL(true);
            } else {
                s = db->Put(sync, Key(i), Value(i));
            }
            if (!s.ok())
                break;
            acked->store(i + 1);
        }
    }
    printf("status %d %d %s\n", s.code(), s.subcode(), s.ToString().c_str());
    if (db) {
        Status closed = db->Close();
        printf("close %d %d %s\n", closed.code(), closed.subcode(), closed.ToString().c_str());
    }
    return 0;
}

int Check(const std::string &uri, const std::string &dir, const std::string &flags) {
    uint64_t acked = Acked(dir)->load();
    auto env = NewCompositeEnv(MakeFs(uri));
    Options o = MakeOptions(env.get(), flags);
    o.create_if_missing = acked == 0;
    auto db = OpenDb(o, dir);
    ReadOptions ro;
    ro.verify_checksums = true;
    std::string v;
    for (uint64_t i = 0; i < acked; i++) {
        Status s = db->Get(ro, Key(i), &v);
        if (!s.ok())
            Die("key " + std::to_string(i) + " of " + std::to_string(acked) + ": " + s.ToString());
        if (v != Value(i))
            Die("key " + std::to_string(i) + ": wrong value");
    }
    // One more may be there: it was under way.
    uint64_t seen = 0;
    for (bool async : {false, true}) {
        ro.async_io = async;
        std::unique_ptr<Iterator> it(db->NewIterator(ro));
        for (seen = 0, it->SeekToFirst(); it->Valid(); it->Next())
            seen++;
        Ok(it->status(), "scan");
        if (seen < acked || seen > acked + 1)
            Die("a scan sees " + std::to_string(seen) + " keys, acknowledged were " + std::to_string(acked));
    }
    Ok(db->VerifyChecksum(ro), "checksums");
    Ok(db->CompactRange(CompactRangeOptions(), nullptr, nullptr), "compaction");
    Ok(db->Close(), "close");
    Acked(dir)->store(seen);
    printf("checked %llu\n", static_cast<unsigned long long>(seen));
    return 0;
}

size_t Descriptors(bool show = false) {
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    for (dirent *e; (e = readdir(d));) {
        n++;
        char target[512];
        std::string link = std::string("/proc/self/fd/") + e->d_name;
        ssize_t len = show ? readlink(link.c_str(), target, sizeof target - 1) : -1;
        if (len > 0)
            fprintf(stderr, "%s %.*s\n", e->d_name, static_cast<int>(len), target);
    }
    closedir(d);
    return n;
}

size_t Mappings() {
    size_t n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    for (int c; (c = fgetc(f)) != EOF;)
        n += c == '\n';
    fclose(f);
    return n;
}

void UseFiles(FileSystem *fs, const std::string &path, bool direct) {
    FileOptions fo;
    fo.use_direct_reads = fo.use_direct_writes = direct;
    IOOptions io;
    char *page = static_cast<char *>(aligned_alloc(4096, 16384));
    memset(page, 'x', 16384);
    std::unique_ptr<FSWritableFile> w;
    Ok(fs->NewWritableFile(path, fo, &w, nullptr), "create");
    for (uint64_t i = 0; i < 4; i++) {
        Slice data(page + i * 4096, 4096);
        Ok(direct ? w->PositionedAppend(data, i * 4096, io, nullptr) : w->Append(data, io, nullptr), "append");
    }
    w.reset();
    std::unique_ptr<FSRandomAccessFile> r;
    Ok(fs->NewRandomAccessFile(path, fo, &r, nullptr), "open");
    FSReadRequest reqs[4];
    for (uint64_t i = 0; i < 4; i++)
        reqs[i].offset = i * 4096, reqs[i].len = 4096, reqs[i].scratch = page + i * 4096;
    Ok(r->MultiRead(reqs, 4, io, nullptr), "multi-read");
    std::unique_ptr<FSSequentialFile> q;
    Ok(fs->NewSequentialFile(path, fo, &q, nullptr), "sequential");
    std::unique_ptr<FSDirectory> d;
    Ok(fs->NewDirectory(path.substr(0, path.rfind('/')), io, &d, nullptr), "directory");
    Ok(d->Fsync(io, nullptr), "sync of directory");
    // A file that is missing leaves nothing behind either.
    std::unique_ptr<FSRandomAccessFile> none;
    if (fs->NewRandomAccessFile(path + ".none", fo, &none, nullptr).ok())
        Die("a missing file was opened");
    free(page);
}

int Leaks(const std::string &uri, const std::string &dir, uint64_t count) {
    auto fs = MakeFs(uri);
    Ok(fs->CreateDirIfMissing(dir, IOOptions(), nullptr), "mkdir");
    auto env = NewCompositeEnv(fs);
    Options o = MakeOptions(env.get(), "-");
    auto round = [&](uint64_t i) {
        // Each file on a thread of its own now and then: its queue goes with it.
        auto use = [&] { UseFiles(fs.get(), dir + "/file", i % 2); };
        if (i % 10 == 0)
            std::thread(use).join();
        else
            use();
        if (i % 20 == 0) {
            OpenDb(o, dir + "/db")->Put(WriteOptions(), Key(i), Value(i));
            // Other file systems of the same process come and go too.
            if (!uri.empty())
                MakeFs(uri);
        }
    };
    for (uint64_t i = 0; i < 100; i++)
        round(i);
    size_t fds = Descriptors(), maps = Mappings();
    for (uint64_t i = 0; i < count; i++)
        round(i);
    size_t fds_now = Descriptors(), maps_now = Mappings();
    printf("descriptors %zu then %zu, mappings %zu then %zu\n", fds, fds_now, maps, maps_now);
    if (fds_now > fds) {
        Descriptors(true);
        Die("descriptors stay open");
    }
    // Stacks and arenas of threads come and go.
    if (maps_now > maps + 100)
        Die("mappings stay");
    return 0;
}

// Destroyed after main, and after what the libraries made later.
std::unique_ptr<Env> static_env;
std::unique_ptr<FSRandomAccessFile> static_file;

int Exit(const std::string &uri, const std::string &dir, const std::string &how) {
    auto fs = MakeFs(uri);
    static_env = NewCompositeEnv(fs);
    Options o = MakeOptions(static_env.get(), "d");
    auto db = OpenDb(o, dir);
    for (uint64_t i = 0; i < 500; i++)
        Ok(db->Put(WriteOptions(), Key(i), Value(i)), "put");
    std::string v;
    Ok(db->Get(ReadOptions(), Key(0), &v), "get");
    UseFiles(fs.get(), dir + "/used", false);
    Ok(fs->NewRandomAccessFile(dir + "/used", FileOptions(), &static_file, nullptr), "open");
    if (how == "static")
        return 0; // RocksDB wants databases closed before its own statics go; files may stay
    db.release();
    static_env.release();
    new std::shared_ptr<FileSystem>(fs);
    if (how == "thread") {
        std::thread([] { exit(0); }).join();
    }
    if (how == "quick")
        quick_exit(0);
    return 0;
}

int WaitFor(pid_t child) {
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        Die("waitpid");
    return status;
}

int Fork(const std::string &uri, const std::string &dir) {
    auto fs = MakeFs(uri);
    Ok(fs->CreateDirIfMissing(dir, IOOptions(), nullptr), "mkdir");
    // Without a database, that is before RocksDB has threads of its own, a child may end in the ordinary way.
    UseFiles(fs.get(), dir + "/file", true);
    pid_t first = fork();
    if (first == 0)
        exit(0);
    if (WaitFor(first) != 0)
        Die("the first child");
    UseFiles(fs.get(), dir + "/file", true);

    auto env = NewCompositeEnv(fs);
    Options o = MakeOptions(env.get(), "d");
    auto db = OpenDb(o, dir + "/db");
    auto work = [](DB *on, uint64_t from) {
        std::string v;
        for (uint64_t i = from; i < from + 300; i++)
            Ok(on->Put(WriteOptions(), Key(i), Value(i)), "put");
        Ok(on->Flush(FlushOptions()), "flush");
        for (uint64_t i = from; i < from + 300; i++) {
            Ok(on->Get(ReadOptions(), Key(i), &v), "get");
            if (v != Value(i))
                Die("wrong value");
        }
        std::unique_ptr<Iterator> it(on->NewIterator(ReadOptions()));
        for (it->SeekToFirst(); it->Valid(); it->Next()) {
        }
        Ok(it->status(), "scan");
    };
    work(db.get(), 0);
    for (int how = 0; how < 3; how++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (how == 0)
                execl("/bin/true", "true", nullptr), _exit(1);
            if (how == 1)
                _exit(0);
            // A child may use the plugin anew, on the thread that forked too.
            auto own = MakeFs(uri);
            UseFiles(own.get(), dir + "/child", true);
            UseFiles(own.get(), dir + "/child", false);
            _exit(0);
        }
        work(db.get(), 1000 * (how + 1));
        int status = WaitFor(child);
        if (status != 0)
            Die("child " + std::to_string(how) + " ended with " + std::to_string(status));
    }
    work(db.get(), 9000);
    Ok(db->Close(), "close");
    printf("forked\n");
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    std::vector<std::string> a(argv + 1, argv + argc);
    if (a.size() == 5 && a[0] == "write")
        return Write(a[1], a[2], strtoull(a[3].c_str(), nullptr, 10), a[4]);
    if (a.size() == 4 && a[0] == "check")
        return Check(a[1], a[2], a[3]);
    if (a.size() == 4 && a[0] == "leaks")
        return Leaks(a[1], a[2], strtoull(a[3].c_str(), nullptr, 10));
    if (a.size() == 4 && a[0] == "exit")
        return Exit(a[1], a[2], a[3]);
    if (a.size() == 3 && a[0] == "fork")
        return Fork(a[1], a[2]);
    fprintf(stderr, "usage: see the beginning of store.cc\n");
    return 2;
}
