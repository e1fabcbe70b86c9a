// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Reading: sequential, random, many at once, asynchronous, mapped.
#include <algorithm>
#include <mutex>
#include <random>

#include "support.h"

namespace contract {

// Not a multiple of anything.
constexpr size_t kSize = 5 * 1024 * 1024 + 1237;

class ReadTest : public FsTest {
  protected:
    void SetUp() override {
        FsTest::SetUp();
        data = Pattern(0, kSize);
        Spill(Path("data"), data);
    }
    std::string Expected(uint64_t offset, size_t n) const {
        return offset >= data.size() ? "" : data.substr(offset, n);
    }
    std::string data;
};

TEST_P(ReadTest, Sequential) {
    std::unique_ptr<FSSequentialFile> f;
    OK(fs->NewSequentialFile(Path("data"), options, &f, nullptr));
    ASSERT_EQ(f->use_direct_io(), Direct());
    Aligned buf(1 << 20);
    Slice got;
    std::string all;
    if (Direct()) {
        for (uint64_t at = 0;; at += 65536) {
            OK(f->PositionedRead(at, 65536, io, &got, buf.get(), nullptr));
            all.append(got.data(), got.size());
            if (got.size() < 65536)
                break;
        }
    } else {
        size_t sizes[] = {1, 4095, 4097, 100000, 7}, i = 0;
        for (;;) {
            size_t n = sizes[i++ % 5];
            OK(f->Read(n, io, &got, buf.get(), nullptr));
            all.append(got.data(), got.size());
            if (got.size() < n)
                break;
        }
        OK(f->Read(100, io, &got, buf.get(), nullptr));
        EXPECT_EQ(got.size(), 0u);
    }
    EXPECT_TRUE(all == data);
}

TEST_P(ReadTest, SequentialSkip) {
    if (Direct())
        GTEST_SKIP() << "RocksDB skips only in buffered files";
    std::unique_ptr<FSSequentialFile> f;
    OK(fs->NewSequentialFile(Path("data"), options, &f, nullptr));
    char buf[100];
    Slice got;
    OK(f->Read(10, io, &got, buf, nullptr));
    OK(f->Skip(1000));
    OK(f->Read(100, io, &got, buf, nullptr));
    EXPECT_EQ(got.ToString(), Expected(1010, 100));
    OK(f->Skip(kSize - 1110 - 5));
    OK(f->Read(100, io, &got, buf, nullptr));
    EXPECT_EQ(got.ToString(), Expected(kSize - 5, 100));
}

TEST_P(ReadTest, RandomAnywhere) {
    auto f = OpenRandom(Path("data"));
    ASSERT_TRUE(f);
    EXPECT_EQ(f->use_direct_io(), Direct());
    Aligned buf(1 << 20);
    std::mt19937 rnd(1);
    for (int i = 0; i < 300; i++) {
        uint64_t at = rnd() % (kSize + 10000);
        size_t n = rnd() % 20000;
        if (Direct())
            at = at / kPage * kPage, n = (n / kPage + 1) * kPage;
        Slice got("never set");
        OK(f->Read(at, n, io, &got, buf.get(), nullptr));
        ASSERT_EQ(got.ToString(), Expected(at, n)) << at << " " << n;
    }
    if (IsStock())
        return; // reads of nothing are an error there, with an old errno
    Slice got("never set");
    OK(f->Read(kPage, 0, io, &got, buf.get(), nullptr));
    EXPECT_EQ(got.size(), 0u);
}

TEST_P(ReadTest, NothingAndTheSameTwiceAmongMany) {
    if (IsStock())
        GTEST_SKIP() << "reads of nothing are an error there, with an old errno";
    auto f = OpenRandom(Path("data"));
    ASSERT_TRUE(f);
    Aligned a(kPage), b(kPage), c(kPage);
    FSReadRequest r[4];
    r[0].offset = kPage, r[0].len = kPage, r[0].scratch = a.get();
    r[1].offset = kPage, r[1].len = 0, r[1].scratch = nullptr;
    r[2].offset = kPage, r[2].len = kPage, r[2].scratch = b.get();
    r[3].offset = 2 * kPage, r[3].len = 0, r[3].scratch = c.get();
    OK(f->MultiRead(r, 4, io, nullptr));
    for (auto &one : r) {
        OK(one.status);
        EXPECT_EQ(one.result.ToString(), Expected(one.offset, one.len));
    }
}

TEST_P(ReadTest, EmptyFile) {
    Spill(Path("empty"), "");
    auto f = OpenRandom(Path("empty"));
    ASSERT_TRUE(f);
    Aligned buf(kPage);
    Slice got("never set");
    OK(f->Read(0, kPage, io, &got, buf.get(), nullptr));
    EXPECT_EQ(got.size(), 0u);
    FSReadRequest r[2];
    for (auto &one : r)
        one.offset = 0, one.len = kPage, one.scratch = buf.get();
    OK(f->MultiRead(r, 2, io, nullptr));
    for (auto &one : r) {
        OK(one.status);
        EXPECT_EQ(one.result.size(), 0u);
    }
}

// What MultiRead is asked for, with the memory that it needs.
struct Batch {
    std::vector<FSReadRequest> requests;
    std::vector<Aligned> memory;
    void Add(uint64_t at, size_t n) {
        memory.emplace_back(n + 1);
        requests.emplace_back();
        auto &r = requests.back();
        r.offset = at, r.len = n, r.scratch = memory.back().get(), r.result = Slice("never set");
        r.status = IOStatus::Corruption("never set");
    }
};

TEST_P(ReadTest, MultiReadOfEveryKind) {
    auto f = OpenRandom(Path("data"));
    ASSERT_TRUE(f);
    std::mt19937 rnd(2);
    for (size_t count : {1, 2, 3, 16, 64, 300}) {
        Batch b;
        for (size_t i = 0; i < count; i++) {
            uint64_t at = rnd() % kSize;
            size_t n = rnd() % (i % 10 == 0 ? 300000 : 5000);
            if (i % 7 == 3)
                at = kSize - std::min<uint64_t>(kSize, n / 2); // ends beyond the end
            if (i % 11 == 5)
                at = kSize + 100000; // begins beyond the end
            if (Direct())
                at = at / kPage * kPage, n = (n / kPage + 1) * kPage;
            else
                n += IsStock(); // reads of nothing are an error there
            if (i % 13 == 6 && !IsStock())
                n = 0;
            b.Add(at, n);
        }
        OK(f->MultiRead(b.requests.data(), count, io, nullptr));
        for (auto &r : b.requests) {
            OK(r.status);
            ASSERT_EQ(r.result.ToString(), Expected(r.offset, r.len)) << count << ": " << r.offset << " " << r.len;
        }
    }
}

TEST_P(ReadTest, ManyThreadsReadOneFile) {
    auto f = OpenRandom(Path("data"));
    ASSERT_TRUE(f);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 rnd(100 + t);
            for (int round = 0; round < 40; round++) {
                Batch b;
                for (int i = 0; i < 12; i++)
                    b.Add(rnd() % (kSize / kPage) * kPage, kPage * (1 + rnd() % 3));
                IOStatus s = f->MultiRead(b.requests.data(), b.requests.size(), io, nullptr);
                if (!s.ok())
                    wrong++;
                for (auto &r : b.requests)
                    if (!r.status.ok() || r.result.ToString() != Expected(r.offset, r.len))
                        wrong++;
                Slice got;
                Aligned buf(kPage);
                uint64_t at = rnd() % (kSize / kPage) * kPage;
                s = f->Read(at, kPage, io, &got, buf.get(), nullptr);
                if (!s.ok() || got.ToString() != Expected(at, kPage))
                    wrong++;
            }
        });
    }
    for (auto &t : threads)
        t.join();
    EXPECT_EQ(wrong, 0);
}

// Threads come and go: what an engine keeps for a thread must go with it and be there again for the next.
TEST_P(ReadTest, ShortLivedThreads) {
    auto f = OpenRandom(Path("data"));
    ASSERT_TRUE(f);
    std::atomic<int> wrong{0};
    for (int t = 0; t < 60; t++) {
        std::thread([&] {
            Batch b;
            for (int i = 0; i < 4; i++)
                b.Add((t + i) * kPage, kPage);
            if (!f->MultiRead(b.requests.data(), 4, io, nullptr).ok())
                wrong++;
            for (auto &r : b.requests)
                if (!r.status.ok() || r.result.ToString() != Expected(r.offset, r.len))
                    wrong++;
        }).join();
    }
    EXPECT_EQ(wrong, 0);
}

TEST_P(ReadTest, PrefetchHintsAndCache) {
    auto f = OpenRandom(Path("data"));
    ASSERT_TRUE(f);
    std::unique_ptr<FSRandomAccessFile> own;
    OK(stock->NewRandomAccessFile(Path("data"), options, &own, nullptr));
    EXPECT_EQ(Brief(own->Prefetch(0, 65536, io, nullptr)), Brief(f->Prefetch(0, 65536, io, nullptr)));
    EXPECT_EQ(Brief(own->InvalidateCache(0, 0)), Brief(f->InvalidateCache(0, 0)));
    EXPECT_EQ(own->GetRequiredBufferAlignment(), f->GetRequiredBufferAlignment());
    for (auto hint : {FSRandomAccessFile::kRandom, FSRandomAccessFile::kSequential, FSRandomAccessFile::kWillNeed,
                      FSRandomAccessFile::kWontNeed, FSRandomAccessFile::kNormal})
        f->Hint(hint);
    Aligned buf(kPage);
    Slice got;
    OK(f->Read(0, kPage, io, &got, buf.get(), nullptr));
    EXPECT_EQ(got.ToString(), Expected(0, kPage));
#if ROCKSDB_MAJOR >= 11
    uint64_t size = 0;
    OK(f->GetFileSize(&size));
    EXPECT_EQ(size, kSize);
#endif
}

TEST_P(ReadTest, UniqueIdsAreThoseOfStock) {
    Spill(Path("other"), "x");
    auto f = OpenRandom(Path("data")), again = OpenRandom(Path("data")), other = OpenRandom(Path("other"));
    std::unique_ptr<FSRandomAccessFile> own;
    OK(stock->NewRandomAccessFile(Path("data"), options, &own, nullptr));
    auto id = [](FSRandomAccessFile *file) {
        char buf[64];
        return std::string(buf, file->GetUniqueId(buf, sizeof buf));
    };
    EXPECT_FALSE(id(f.get()).empty());
    EXPECT_EQ(id(f.get()), id(again.get()));
    EXPECT_EQ(id(f.get()), id(own.get()));
    EXPECT_NE(id(f.get()), id(other.get()));
}

TEST_P(ReadTest, MappedReads) {
    if (Direct())
        GTEST_SKIP() << "mapped files are not direct";
    options.use_mmap_reads = true;
    auto f = OpenRandom(Path("data"));
    ASSERT_TRUE(f);
    char buf[1000];
    Slice got;
    OK(f->Read(12345, 1000, io, &got, buf, nullptr));
    EXPECT_EQ(got.ToString(), Expected(12345, 1000));
    OK(f->Read(kSize - 10, 1000, io, &got, buf, nullptr));
    EXPECT_EQ(got.ToString(), Expected(kSize - 10, 1000));
    FSReadRequest r;
    r.offset = 777, r.len = 1000, r.scratch = buf;
    OK(f->MultiRead(&r, 1, io, nullptr));
    OK(r.status);
    EXPECT_EQ(r.result.ToString(), Expected(777, 1000));
}

// A read in flight, and what its callback saw.
struct Async {
    Aligned memory;
    uint64_t offset;
    size_t len;
    void *handle = nullptr;
    IOHandleDeleter deleter;
    std::atomic<int> calls{0};
    IOStatus status;
    std::string result;
    Async(uint64_t at, size_t n) : memory(n + 1), offset(at), len(n) {}
    ~Async() { Release(); }
    void Release() {
        if (handle && deleter)
            deleter(handle);
        handle = nullptr;
    }
};

class AsyncTest : public ReadTest {
  protected:
    using Reads = std::vector<std::unique_ptr<Async>>;

    // False where the file system has no asynchronous reads (stock without liburing).
    bool Start(FSRandomAccessFile *f, Async *a) {
        FSReadRequest r;
        r.offset = a->offset, r.len = a->len, r.scratch = a->memory.get();
        auto done = [](const FSReadRequest &req, void *arg) {
            auto *self = static_cast<Async *>(arg);
            self->calls++;
            self->status = req.status;
            if (req.status.ok())
                self->result = req.result.ToString();
        };
        IOStatus s = f->ReadAsync(r, io, done, a, &a->handle, &a->deleter, nullptr);
        if (s.IsNotSupported() && IsStock())
            return false;
        EXPECT_TRUE(s.ok()) << s.ToString();
        return s.ok();
    }

    void Check(const Async &a) {
        EXPECT_EQ(a.calls, 1) << a.offset;
        EXPECT_TRUE(a.status.ok()) << a.status.ToString();
        EXPECT_TRUE(a.result == Expected(a.offset, a.len)) << a.offset << " " << a.len << ": " << a.result.size();
    }

    // Those that were not finished at once.
    static std::vector<void *> Handles(const Reads &reads) {
        std::vector<void *> h;
        for (auto &a : reads)
            if (a->handle)
                h.push_back(a->handle);
        return h;
    }

    Reads Make(size_t count, unsigned seed) {
        std::mt19937 rnd(seed);
        Reads reads;
        for (size_t i = 0; i < count; i++) {
            uint64_t at = rnd() % kSize;
            size_t n = 1 + rnd() % 50000;
            if (i % 9 == 4)
                at = kSize - 100;
            if (i % 9 == 8)
                at = kSize + kPage;
            if (Direct())
                at = at / kPage * kPage, n = (n / kPage + 1) * kPage;
            reads.push_back(std::make_unique<Async>(at, n));
        }
        return reads;
    }
};

TEST_P(AsyncTest, PollForAll) {
    auto f = OpenRandom(Path("data"));
    for (size_t count : {1, 2, 8, 100, 300}) {
        auto reads = Make(count, count);
        for (auto &a : reads)
            if (!Start(f.get(), a.get()))
                GTEST_SKIP() << "no asynchronous reads";
        auto handles = Handles(reads);
        OK(fs->Poll(handles, handles.size()));
        for (auto &a : reads)
            Check(*a);
    }
}

TEST_P(AsyncTest, PollOneByOneInAnyOrder) {
    auto f = OpenRandom(Path("data"));
    auto reads = Make(40, 5);
    for (auto &a : reads)
        if (!Start(f.get(), a.get()))
            GTEST_SKIP() << "no asynchronous reads";
    std::shuffle(reads.begin(), reads.end(), std::mt19937(6));
    for (auto &a : reads) {
        if (a->handle) {
            std::vector<void *> one{a->handle};
            OK(fs->Poll(one, 1));
        }
        Check(*a);
        a->Release();
    }
}

// A handle that is finished may be polled again, as RocksDB does when a later read was reaped together with it.
TEST_P(AsyncTest, PollOfFinishedReads) {
    auto f = OpenRandom(Path("data"));
    auto reads = Make(10, 7);
    for (auto &a : reads)
        if (!Start(f.get(), a.get()))
            GTEST_SKIP() << "no asynchronous reads";
    auto handles = Handles(reads);
    OK(fs->Poll(handles, handles.size()));
    OK(fs->Poll(handles, handles.size()));
    for (auto &a : reads)
        Check(*a);
}

TEST_P(AsyncTest, PollFromAnotherThread) {
    if (IsStock())
        GTEST_SKIP() << "stock has a ring for each thread";
    auto f = OpenRandom(Path("data"));
    for (int round = 0; round < 10; round++) {
        auto reads = Make(20, 50 + round);
        for (auto &a : reads)
            ASSERT_TRUE(Start(f.get(), a.get()));
        auto handles = Handles(reads);
        IOStatus s;
        std::thread([&] { s = fs->Poll(handles, handles.size()); }).join();
        OK(s);
        for (auto &a : reads)
            Check(*a);
    }
}

// The thread that submitted is gone before its reads are waited for.
TEST_P(AsyncTest, TheSubmitterEndsFirst) {
    if (IsStock())
        GTEST_SKIP() << "stock has a ring for each thread";
    auto f = OpenRandom(Path("data"));
    for (int round = 0; round < 10; round++) {
        auto reads = Make(20, 80 + round);
        std::thread([&] {
            for (auto &a : reads)
                EXPECT_TRUE(Start(f.get(), a.get()));
        }).join();
        auto handles = Handles(reads);
        OK(fs->Poll(handles, handles.size()));
        for (auto &a : reads)
            Check(*a);
    }
}

TEST_P(AsyncTest, AbortNeverLeavesAReadInFlight) {
    auto f = OpenRandom(Path("data"));
    for (bool elsewhere : {false, true}) {
        if (elsewhere && IsStock())
            continue;
        for (int round = 0; round < 10; round++) {
            auto reads = Make(30, 90 + round);
            for (auto &a : reads)
                if (!Start(f.get(), a.get()))
                    GTEST_SKIP() << "no asynchronous reads";
            // Half of them; the others go on.
            Reads aborted;
            for (size_t i = 0; i < 15; i++)
                aborted.push_back(std::move(reads[i * 2]));
            reads.erase(std::remove(reads.begin(), reads.end(), nullptr), reads.end());
            auto handles = Handles(aborted);
            IOStatus s;
            if (elsewhere)
                std::thread([&] { s = fs->AbortIO(handles); }).join();
            else
                s = fs->AbortIO(handles);
            OK(s);
            // After it nobody writes to their memory. A callback may have been called or not, once at most.
            for (auto &a : aborted) {
                EXPECT_LE(a->calls, 1);
                a->Release();
                memset(a->memory.get(), 0x5a, a->len);
            }
            auto rest = Handles(reads);
            OK(fs->Poll(rest, rest.size()));
            for (auto &a : reads)
                Check(*a);
            for (auto &a : aborted)
                for (size_t i = 0; i < a->len; i++)
                    ASSERT_EQ(a->memory.get()[i], 0x5a);
        }
    }
}

// Other reads of the same thread go between submission and waiting.
TEST_P(AsyncTest, OtherReadsInBetween) {
    auto f = OpenRandom(Path("data"));
    auto reads = Make(16, 123);
    for (auto &a : reads)
        if (!Start(f.get(), a.get()))
            GTEST_SKIP() << "no asynchronous reads";
    Batch b;
    for (int i = 0; i < 16; i++)
        b.Add(i * 3 * kPage, kPage);
    OK(f->MultiRead(b.requests.data(), 16, io, nullptr));
    for (auto &r : b.requests)
        EXPECT_EQ(r.result.ToString(), Expected(r.offset, r.len));
    Aligned buf(kPage);
    Slice got;
    OK(f->Read(0, kPage, io, &got, buf.get(), nullptr));
    EXPECT_EQ(got.ToString(), Expected(0, kPage));
    auto handles = Handles(reads);
    OK(fs->Poll(handles, handles.size()));
    for (auto &a : reads)
        Check(*a);
}

// The file goes while its reads are in flight: RocksDB does not, but an operation owns its file.
TEST_P(AsyncTest, TheFileIsClosedFirst) {
    if (IsStock())
        GTEST_SKIP() << "stock does not promise it";
    auto f = OpenRandom(Path("data"));
    auto reads = Make(8, 321);
    for (auto &a : reads)
        ASSERT_TRUE(Start(f.get(), a.get()));
    f.reset();
    auto handles = Handles(reads);
    OK(fs->Poll(handles, handles.size()));
    for (auto &a : reads)
        Check(*a);
}

TEST_P(AsyncTest, ManyThreads) {
    auto f = OpenRandom(Path("data"));
    {
        Async probe(0, kPage);
        if (!Start(f.get(), &probe))
            GTEST_SKIP() << "no asynchronous reads";
        std::vector<void *> h;
        if (probe.handle)
            h.push_back(probe.handle);
        OK(fs->Poll(h, h.size()));
    }
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; t++) {
        threads.emplace_back([&, t] {
            for (int round = 0; round < 10; round++) {
                auto reads = Make(12, 1000 + 100 * t + round);
                for (auto &a : reads)
                    EXPECT_TRUE(Start(f.get(), a.get()));
                auto handles = Handles(reads);
                IOStatus s = fs->Poll(handles, handles.size());
                EXPECT_TRUE(s.ok()) << s.ToString();
                for (auto &a : reads)
                    Check(*a);
            }
        });
    }
    for (auto &t : threads)
        t.join();
}

#if ROCKSDB_MAJOR >= 9
TEST_P(AsyncTest, TheFileSystemSaysThatItReadsAsynchronously) {
    if (IsStock())
        GTEST_SKIP() << "stock says so only with liburing";
    int64_t ops = 0;
    fs->SupportedOps(ops);
    EXPECT_TRUE(ops & (int64_t{1} << FSSupportedOps::kAsyncIO));
}
#endif

INSTANTIATE_TEST_SUITE_P(All, ReadTest, testing::ValuesIn(Params()), ParamName);
INSTANTIATE_TEST_SUITE_P(All, AsyncTest, testing::ValuesIn(Params()), ParamName);

} // namespace contract
