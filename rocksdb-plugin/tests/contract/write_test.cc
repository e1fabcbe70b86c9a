// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Writing: order, sizes, durability calls, reopening, errors.
#include <cerrno>
#include <csignal>
#include <random>
#include <utility>

#include <sys/resource.h>
#include <sys/stat.h>

#include <sys/syscall.h>

#include "support.h"

// Stands in for the C library's. The descriptor is closed even when close() says something.
static thread_local int next_close_says = 0;
extern "C" int close(int fd) {
    long closed = syscall(SYS_close, fd);
    if (closed == 0 && next_close_says != 0) {
        errno = std::exchange(next_close_says, 0);
        return -1;
    }
    return static_cast<int>(closed);
}

static thread_local bool no_sync_file_range = false;
extern "C" int sync_file_range(int fd, off64_t offset, off64_t n, unsigned flags) {
    if (no_sync_file_range) {
        errno = ENOSYS;
        return -1;
    }
    return static_cast<int>(syscall(SYS_sync_file_range, fd, offset, n, flags));
}

static thread_local int syncs = 0;
extern "C" int fdatasync(int fd) {
    syncs++;
    return static_cast<int>(syscall(SYS_fdatasync, fd));
}

namespace contract {

class WriteTest : public FsTest {
  protected:
    // Appends pages from one buffer that is overwritten as soon as the call returns.
    void AppendPages(FSWritableFile *f, uint64_t from, size_t pages, size_t pages_a_call) {
        Aligned buf(pages_a_call * kPage);
        for (size_t i = 0; i < pages; i += pages_a_call) {
            size_t n = std::min(pages_a_call, pages - i) * kPage;
            std::string bytes = Pattern(from + i * kPage, n);
            memcpy(buf.get(), bytes.data(), n);
            Slice data(buf.get(), n);
            if (Direct())
                OK(f->PositionedAppend(data, from + i * kPage, io, nullptr));
            else
                OK(f->Append(data, io, nullptr));
            memset(buf.get(), 0xee, n);
        }
    }
};

TEST_P(WriteTest, AppendsOfEverySize) {
    if (Direct())
        GTEST_SKIP() << "direct appends are whole pages";
    auto f = Create(Path("f"));
    ASSERT_TRUE(f);
    std::string all;
    std::mt19937 rnd(3);
    std::string last;
    for (int i = 0; i < 400; i++) {
        size_t n = i % 50 == 0 ? 1 << 20 : rnd() % 9000;
        last = Pattern(all.size(), n);
        OK(f->Append(last, io, nullptr));
        all += last;
        last.assign(last.size(), 'x');
        ASSERT_EQ(f->GetFileSize(io, nullptr), all.size());
        if (i % 37 == 0)
            OK(f->Flush(io, nullptr));
        if (i % 91 == 0)
            OK(f->RangeSync(0, all.size(), io, nullptr));
        if (i % 100 == 0)
            OK(f->Sync(io, nullptr));
        if (i % 133 == 0)
            OK(f->Fsync(io, nullptr));
    }
    // What was flushed is there for other readers.
    OK(f->Flush(io, nullptr));
    EXPECT_TRUE(Slurp(Path("f")) == all);
    OK(f->Close(io, nullptr));
    EXPECT_TRUE(Slurp(Path("f")) == all);
}

TEST_P(WriteTest, WholePagesThenTheRightSize) {
    for (size_t call : {1, 16, 256}) {
        std::string path = Path("f" + std::to_string(call));
        auto f = Create(path);
        ASSERT_TRUE(f);
        EXPECT_EQ(f->use_direct_io(), Direct());
        f->SetPreallocationBlockSize(1 << 20);
        f->PrepareWrite(0, 1000 * kPage, io, nullptr);
        AppendPages(f.get(), 0, 1000, call);
        if (HasFatalFailure())
            return;
        uint64_t size = 999 * kPage + 17;
        OK(f->Truncate(size, io, nullptr));
        OK(f->Sync(io, nullptr));
        struct stat st;
        ASSERT_EQ(stat(path.c_str(), &st), 0);
        EXPECT_EQ(static_cast<uint64_t>(st.st_size), size);
        OK(f->Close(io, nullptr));
        ASSERT_EQ(stat(path.c_str(), &st), 0);
        EXPECT_EQ(static_cast<uint64_t>(st.st_size), size);
        EXPECT_TRUE(Slurp(path) == Pattern(0, size)) << call;
        // Space beyond the end that was taken ahead is given back.
        EXPECT_LE(static_cast<uint64_t>(st.st_blocks) * 512, size + (128 << 10));
    }
}

TEST_P(WriteTest, EverythingIsThereRightAfterClose) {
    for (int i = 0; i < 20; i++) {
        std::string path = Path("c" + std::to_string(i));
        auto f = Create(path);
        ASSERT_TRUE(f);
        AppendPages(f.get(), 0, 300, 64);
        if (HasFatalFailure())
            return;
        OK(f->Close(io, nullptr));
        EXPECT_TRUE(Slurp(path) == Pattern(0, 300 * kPage));
    }
}

// ... and after a file object is destroyed that was never closed.
TEST_P(WriteTest, DestructionWithoutClose) {
    auto f = Create(Path("f"));
    ASSERT_TRUE(f);
    AppendPages(f.get(), 0, 300, 64);
    if (HasFatalFailure())
        return;
    f.reset();
    EXPECT_TRUE(Slurp(Path("f")) == Pattern(0, 300 * kPage));
}

// RocksDB writes the last, padded page again and again at the same place: the last one wins.
TEST_P(WriteTest, TheSamePageWrittenOften) {
    if (!Direct())
        GTEST_SKIP() << "buffered files are only appended to";
    auto f = Create(Path("f"));
    ASSERT_TRUE(f);
    Aligned buf(8 * kPage);
    std::string expected;
    for (int i = 0; i < 400; i++) {
        // A page that grows, then what follows it, which moves on by a page now and then.
        uint64_t page = i / 10;
        size_t n = (1 + i % 4) * kPage;
        std::string bytes = Pattern(page * kPage, n, i);
        memcpy(buf.get(), bytes.data(), n);
        OK(f->PositionedAppend(Slice(buf.get(), n), page * kPage, io, nullptr));
        memset(buf.get(), 0xee, n);
        expected.resize(std::max(expected.size(), page * kPage + n));
        expected.replace(page * kPage, n, bytes);
        if (i % 60 == 59) {
            OK(f->Sync(io, nullptr));
            ASSERT_TRUE(Slurp(Path("f")) == expected) << i;
        }
    }
    OK(f->Close(io, nullptr));
    EXPECT_TRUE(Slurp(Path("f")) == expected);
}

// A sync is a sync of everything that was appended before it; the data is seen by other readers then.
TEST_P(WriteTest, ReadableAfterEachSync) {
    auto f = Create(Path("f"));
    ASSERT_TRUE(f);
    for (size_t i = 0; i < 20; i++) {
        AppendPages(f.get(), i * 64 * kPage, 64, 16);
        if (HasFatalFailure())
            return;
        IOStatus s = i % 2 ? f->Sync(io, nullptr) : f->Fsync(io, nullptr);
        OK(s);
        auto reader = OpenRandom(Path("f"));
        Aligned buf(64 * kPage);
        Slice got;
        OK(reader->Read(i * 64 * kPage, 64 * kPage, io, &got, buf.get(), nullptr));
        ASSERT_TRUE(got.ToString() == Pattern(i * 64 * kPage, 64 * kPage));
    }
    OK(f->Close(io, nullptr));
}

TEST_P(WriteTest, TruncateInTheMiddleThenMore) {
    auto f = Create(Path("f"));
    ASSERT_TRUE(f);
    AppendPages(f.get(), 0, 100, 10);
    if (HasFatalFailure())
        return;
    OK(f->Truncate(50 * kPage, io, nullptr));
    OK(f->Sync(io, nullptr));
    EXPECT_TRUE(Slurp(Path("f")) == Pattern(0, 50 * kPage));
    OK(f->Close(io, nullptr));
}

TEST_P(WriteTest, AllocateKeepsTheSize) {
    std::unique_ptr<FSWritableFile> own, f = Create(Path("f"));
    ASSERT_TRUE(f);
    OK(stock->NewWritableFile(Path("own"), options, &own, nullptr));
    EXPECT_EQ(Brief(own->Allocate(0, 1 << 20, io, nullptr)), Brief(f->Allocate(0, 1 << 20, io, nullptr)));
    struct stat a, b;
    ASSERT_EQ(stat(Path("own").c_str(), &a), 0);
    ASSERT_EQ(stat(Path("f").c_str(), &b), 0);
    EXPECT_EQ(a.st_size, b.st_size);
    EXPECT_EQ(a.st_blocks, b.st_blocks);
    AppendPages(f.get(), 0, 3, 1);
    OK(f->Close(io, nullptr));
    EXPECT_TRUE(Slurp(Path("f")) == Pattern(0, 3 * kPage));
}

TEST_P(WriteTest, CreatingTruncates) {
    Spill(Path("f"), std::string(100000, 'o'));
    auto f = Create(Path("f"));
    ASSERT_TRUE(f);
    AppendPages(f.get(), 0, 2, 1);
    OK(f->Close(io, nullptr));
    EXPECT_TRUE(Slurp(Path("f")) == Pattern(0, 2 * kPage));
}

TEST_P(WriteTest, ReopenedForAppend) {
    // RocksDB reopens only buffered files.
    if (Direct())
        GTEST_SKIP() << "RocksDB reopens buffered files only";
    std::string all = Pattern(0, 10001);
    Spill(Path("f"), all);
    for (int i = 0; i < 3; i++) {
        std::unique_ptr<FSWritableFile> f;
        OK(fs->ReopenWritableFile(Path("f"), options, &f, nullptr));
        for (int k = 0; k < 3; k++) {
            std::string more = Pattern(all.size(), 1003);
            OK(f->Append(more, io, nullptr));
            all += more;
        }
        OK(f->Sync(io, nullptr));
        OK(f->Close(io, nullptr));
        ASSERT_TRUE(Slurp(Path("f")) == all) << i;
    }
    std::unique_ptr<FSWritableFile> f;
    OK(fs->ReopenWritableFile(Path("new"), options, &f, nullptr));
    OK(f->Append("abc", io, nullptr));
    OK(f->Close(io, nullptr));
    EXPECT_EQ(Slurp(Path("new")), "abc");
}

TEST_P(WriteTest, ReusedUnderAnotherName) {
    Spill(Path("old"), Pattern(0, 20 * kPage));
    std::unique_ptr<FSWritableFile> f;
    OK(fs->ReuseWritableFile(Path("new"), Path("old"), options, &f, nullptr));
    AppendPages(f.get(), 0, 3, 1);
    OK(f->Close(io, nullptr));
    EXPECT_TRUE(fs->FileExists(Path("old"), io, nullptr).IsNotFound());
    // Recycled: the old bytes may remain behind the new ones.
    EXPECT_TRUE(Slurp(Path("new")).substr(0, 3 * kPage) == Pattern(0, 3 * kPage));
}

TEST_P(WriteTest, MappedWrites) {
    if (Direct())
        GTEST_SKIP() << "mapped files are not direct";
    options.use_mmap_writes = true;
    auto f = Create(Path("f"));
    ASSERT_TRUE(f);
    std::string all = Pattern(0, 300001);
    for (size_t i = 0; i < all.size(); i += 1001)
        OK(f->Append(Slice(all.data() + i, std::min<size_t>(1001, all.size() - i)), io, nullptr));
    OK(f->Sync(io, nullptr));
    OK(f->Close(io, nullptr));
    EXPECT_TRUE(Slurp(Path("f")) == all);
}

TEST_P(WriteTest, RandomReadWriteFile) {
    if (Direct())
        GTEST_SKIP() << "RocksDB uses such files buffered";
    std::unique_ptr<FSRandomRWFile> f;
    LikeStock("missing", [&](FileSystem *any) { return any->NewRandomRWFile(Path("missing"), options, &f, nullptr); });
    Spill(Path("f"), Pattern(0, 100000));
    std::string model = Pattern(0, 100000);
    OK(fs->NewRandomRWFile(Path("f"), options, &f, nullptr));
    std::mt19937 rnd(4);
    std::string buf(30000, 0);
    for (int i = 0; i < 200; i++) {
        uint64_t at = rnd() % 150000;
        size_t n = rnd() % 20000;
        if (i % 2) {
            std::string bytes = Pattern(at, n, i);
            OK(f->Write(at, bytes, io, nullptr));
            if (n)
                model.resize(std::max(model.size(), at + n)), model.replace(at, n, bytes);
        } else {
            Slice got;
            OK(f->Read(at, n, io, &got, buf.data(), nullptr));
            ASSERT_EQ(got.ToString(), at >= model.size() ? "" : model.substr(at, n));
        }
    }
    OK(f->Flush(io, nullptr));
    OK(f->Sync(io, nullptr));
    OK(f->Fsync(io, nullptr));
    EXPECT_TRUE(Slurp(Path("f")) == model);
    OK(f->Close(io, nullptr));
}

TEST_P(WriteTest, NoSpaceIsSaid) {
    if (Direct())
        GTEST_SKIP() << "/dev/full has no direct I/O";
    if (IsStock())
        GTEST_SKIP() << "stock asserts that a file's ranges can be synced";
    std::unique_ptr<FSWritableFile> f;
    OK(fs->NewWritableFile("/dev/full", options, &f, nullptr));
    IOStatus s = f->Append(std::string(100000, 'x'), io, nullptr);
    if (s.ok())
        s = f->Flush(io, nullptr);
    EXPECT_TRUE(s.IsNoSpace()) << s.ToString();
    f->Close(io, nullptr).PermitUncheckedError();
}

// The file may not grow beyond 1 MiB: the write that does must fail, or the next call that promises something.
TEST_P(WriteTest, ErrorsOfWritesSurface) {
    struct Limit {
        rlimit old;
        Limit() {
            getrlimit(RLIMIT_FSIZE, &old);
            rlimit now{1 << 20, old.rlim_max};
            setrlimit(RLIMIT_FSIZE, &now);
            signal(SIGXFSZ, SIG_IGN);
        }
        ~Limit() { setrlimit(RLIMIT_FSIZE, &old); }
    };
    for (int promise = 0; promise < 3; promise++) {
        auto f = Create(Path("f" + std::to_string(promise)));
        ASSERT_TRUE(f);
        AppendPages(f.get(), 0, 250, 50);
        IOStatus s;
        {
            Limit limit;
            Aligned buf(50 * kPage);
            memset(buf.get(), 'x', 50 * kPage);
            Slice data(buf.get(), 50 * kPage);
            s = Direct() ? f->PositionedAppend(data, 250 * kPage, io, nullptr) : f->Append(data, io, nullptr);
            if (s.ok() && promise == 0)
                s = f->Sync(io, nullptr);
            if (s.ok() && promise == 1)
                s = f->Fsync(io, nullptr);
            if (s.ok())
                s = f->Close(io, nullptr);
        }
        EXPECT_TRUE(s.IsIOError()) << promise << ": " << s.ToString();
        EXPECT_NE(s.ToString().find("f" + std::to_string(promise)), std::string::npos)
            << "names the file: " << s.ToString();
        f->Close(io, nullptr).PermitUncheckedError();
    }
}

// Where the kernel has no sync_file_range nothing fails for want of it, and a strict range sync is a sync.
TEST_P(WriteTest, RangeSyncsThatAreNotToBeHad) {
    if (Direct())
        GTEST_SKIP() << "RocksDB syncs ranges of buffered files";
    for (bool strict : {false, true}) {
        options.strict_bytes_per_sync = strict;
        no_sync_file_range = true;
        auto f = Create(Path("f"));
        ASSERT_TRUE(f);
        AppendPages(f.get(), 0, 3, 1);
        syncs = 0;
        IOStatus s = f->RangeSync(0, 2 * kPage, io, nullptr);
        no_sync_file_range = false;
        EXPECT_TRUE(s.ok()) << s.ToString();
        EXPECT_EQ(syncs, strict ? 1 : 0);
        OK(f->RangeSync(0, 3 * kPage, io, nullptr));
        OK(f->Close(io, nullptr));
    }
}

// Network file systems say it only there that data cannot be written.
TEST_P(WriteTest, ErrorsOfCloseSurface) {
    for (int error : {EIO, ENOSPC, EDQUOT}) {
        auto f = Create(Path("f"));
        ASSERT_TRUE(f);
        AppendPages(f.get(), 0, 3, 1);
        next_close_says = error;
        IOStatus s = f->Close(io, nullptr);
        EXPECT_EQ(next_close_says, 0);
        EXPECT_TRUE(s.IsIOError()) << s.ToString();
        EXPECT_EQ(s.subcode() == Status::kNoSpace, error == ENOSPC || (error == EDQUOT && !IsStock())) << s.ToString();
    }
}

INSTANTIATE_TEST_SUITE_P(All, WriteTest, testing::ValuesIn(Params()), ParamName);

} // namespace contract
