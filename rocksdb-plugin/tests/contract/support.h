// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the contract tests share: the file systems under test, aligned memory, files with known bytes.
//
// Every test runs on RocksDB's own file system too ("stock"). What stock does is the contract, so a test that it does
// not pass is wrong; what it cannot do (asynchronous reads without liburing) is skipped there.
#pragma once

#include <gtest/gtest.h>
#include <rocksdb/convenience.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/options.h>
#include <rocksdb/version.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

namespace contract {

using namespace rocksdb;

constexpr size_t kPage = 4096;

struct Param {
    const char *name;
    const char *uri; // "" is RocksDB's own file system
    bool direct;
};

inline std::vector<Param> Params() {
    static const std::pair<const char *, const char *> engines[] = {
        {"stock", ""},
        {"posix", "engineswap://posix"},
        {"libaio", "engineswap://libaio"},
        {"io_uring", "engineswap://io_uring"},
        {"io_uring_shallow", "engineswap://io_uring?depth=4"},
        {"mixed", "engineswap://io_uring?wal=posix&compaction=libaio"},
    };
    std::vector<Param> all;
    for (auto &e : engines)
        for (bool direct : {false, true})
            all.push_back({e.first, e.second, direct});
    return all;
}

inline std::string ParamName(const testing::TestParamInfo<Param> &p) {
    return std::string(p.param.name) + (p.param.direct ? "_direct" : "_buffered");
}

// The bytes of the file at `offset`: a byte that differs between places a page, a megabyte or a whole file apart.
inline char ByteAt(uint64_t offset, uint64_t seed = 0) {
    uint64_t x = (offset + seed * 0x9e3779b97f4a7c15ull) / 8 * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 29;
    return static_cast<char>(x >> (8 * (offset % 7)));
}

inline std::string Pattern(uint64_t offset, size_t n, uint64_t seed = 0) {
    std::string s(n, 0);
    for (size_t i = 0; i < n; i++)
        s[i] = ByteAt(offset + i, seed);
    return s;
}

class Aligned {
  public:
    explicit Aligned(size_t n)
        : data_(static_cast<char *>(aligned_alloc(kPage, (n + kPage - 1) / kPage * kPage + kPage))) {}
    ~Aligned() { free(data_); }
    Aligned(const Aligned &) = delete;
    Aligned(Aligned &&other) noexcept : data_(other.data_) { other.data_ = nullptr; }
    char *get() { return data_; }

  private:
    char *data_;
};

// Behind the file system's back.
inline std::string Slurp(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
}

inline void Spill(const std::string &path, const std::string &data) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << data;
}

// The file is on a disk, not in memory, so that direct I/O works: the harness names the directory.
inline std::string FreshDir() {
    const char *base = getenv("CONTRACT_DIR");
    std::string path = std::string(base ? base : ".") + "/contract.XXXXXX";
    if (!mkdtemp(path.data()))
        abort();
    return path;
}

inline bool Required(const char *engine) {
    const char *list = getenv("ENGINESWAP_TEST_REQUIRE");
    return list && std::string(list).find(engine) != std::string::npos;
}

inline std::string Brief(const Status &s) {
    return std::to_string(s.code()) + "/" + std::to_string(s.subcode());
}

class FsTest : public testing::TestWithParam<Param> {
  protected:
    void SetUp() override {
        dir = FreshDir();
        stock = FileSystem::Default();
        if (std::string(GetParam().uri).empty()) {
            fs = stock;
        } else {
            ConfigOptions config;
            Status s = FileSystem::CreateFromString(config, GetParam().uri, &fs);
            if (s.IsNotSupported() && !Required(GetParam().name))
                GTEST_SKIP() << s.ToString();
            ASSERT_TRUE(s.ok()) << s.ToString();
        }
        options.use_direct_reads = GetParam().direct;
        options.use_direct_writes = GetParam().direct;
    }

    void TearDown() override {
        fs.reset();
        if (system(("rm -rf '" + dir + "'").c_str()) != 0)
            ADD_FAILURE() << dir;
    }

    bool IsStock() const { return fs == stock; }
    bool Direct() const { return GetParam().direct; }
    std::string Path(const std::string &name) const { return dir + "/" + name; }

    std::unique_ptr<FSRandomAccessFile> OpenRandom(const std::string &path) {
        std::unique_ptr<FSRandomAccessFile> f;
        IOStatus s = fs->NewRandomAccessFile(path, options, &f, nullptr);
        EXPECT_TRUE(s.ok()) << s.ToString();
        return f;
    }

    std::unique_ptr<FSWritableFile> Create(const std::string &path) {
        std::unique_ptr<FSWritableFile> f;
        IOStatus s = fs->NewWritableFile(path, options, &f, nullptr);
        EXPECT_TRUE(s.ok()) << s.ToString();
        return f;
    }

    // The same call on both file systems ends with the same code.
    void LikeStock(const char *what, const std::function<Status(FileSystem *)> &call) {
        Status expected = call(stock.get());
        Status got = call(fs.get());
        EXPECT_EQ(Brief(expected), Brief(got))
            << what << ": stock " << expected.ToString() << ", here " << got.ToString();
    }

    std::string dir;
    std::shared_ptr<FileSystem> fs, stock;
    FileOptions options;
    IOOptions io;
};

#define OK(expr)                                                                                                       \
    do {                                                                                                               \
        ::rocksdb::Status ok_ = (expr);                                                                                \
        ASSERT_TRUE(ok_.ok()) << ok_.ToString();                                                                       \
    } while (0)

} // namespace contract
