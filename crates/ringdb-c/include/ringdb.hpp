// SPDX-License-Identifier: MIT OR Apache-2.0
//
// ringdb for C++17: the C interface (ringdb.h) with owners, string views, ranges and exceptions. Header only: what is
// linked is libringdb and its C ABI, so compilers and standard libraries may differ.
//
// Failures are exceptions of type ringdb::error, which has the code, the kind (what to do about it) and the message;
// C++17 has no std::expected, and neither a constructor nor a range-for could return one. A key that is not there is
// no failure: std::nullopt. Callbacks of asynchronous calls get a ringdb::result, whose take() throws. The rules of
// ringdb.h for threads, lifetimes and callbacks hold. An object that was moved from can be assigned to and destroyed.
#ifndef RINGDB_HPP
#define RINGDB_HPP

#include "ringdb.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ringdb {

// What to do about an error.
enum class kind : std::int32_t {
    none = RINGDB_KIND_NONE,
    retry = RINGDB_KIND_RETRY,
    stop = RINGDB_KIND_STOP,
    repair = RINGDB_KIND_REPAIR,
    would_block = RINGDB_KIND_WOULD_BLOCK,
    timed_out = RINGDB_KIND_TIMED_OUT,
    fix_call = RINGDB_KIND_FIX_CALL
};

// Why a call failed.
class error : public std::runtime_error {
  public:
    explicit error(const ringdb_error &e)
        : std::runtime_error(e.message),
          code_(e.code),
          kind_(static_cast<ringdb::kind>(e.kind)),
          os_errno_(e.os_errno) {}
    // RINGDB_...
    std::int32_t code() const noexcept { return code_; }
    ringdb::kind kind() const noexcept { return kind_; }
    // The kernel's errno, 0 if there was none.
    std::int32_t os_errno() const noexcept { return os_errno_; }

  private:
    std::int32_t code_;
    ringdb::kind kind_;
    std::int32_t os_errno_;
};

namespace detail {

template <auto Free>
struct freer {
    template <class T>
    void operator()(T *handle) const noexcept {
        Free(handle);
    }
};
template <class T, auto Free>
using owner = std::unique_ptr<T, freer<Free>>;

// Calls with a place for the error; throws it.
template <class Call>
std::int32_t checked(Call &&call) {
    ringdb_error e;
    const std::int32_t code = call(&e);
    if (code < 0)
        throw error(e);
    return code;
}

// Calls with a place for a handle.
template <class Handle, class Call>
Handle *made(Call &&call) {
    Handle *out = nullptr;
    checked([&](ringdb_error *e) { return call(&out, e); });
    return out;
}

inline ringdb_slice slice(std::string_view bytes) {
    return {bytes.data(), bytes.size()};
}

inline std::string_view view(const ringdb_slice &s) {
    return {static_cast<const char *>(s.data), s.len};
}

inline std::uint64_t milliseconds(std::chrono::milliseconds time) {
    return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}

inline std::uint64_t microseconds(std::chrono::microseconds time) {
    return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}

template <class T>
T *not_null(T *made) {
    if (!made)
        throw std::bad_alloc();
    return made;
}

} // namespace detail

// Bytes that the library gives away.
class value {
  public:
    value() = default;
    explicit value(ringdb_value *owned) : owner_(owned) {}
    std::string_view view() const noexcept {
        return {static_cast<const char *>(ringdb_value_data(owner_.get())), ringdb_value_len(owner_.get())};
    }
    operator std::string_view() const noexcept { return view(); }
    std::string str() const { return std::string(view()); }
    std::size_t size() const noexcept { return view().size(); }

  private:
    detail::owner<ringdb_value, ringdb_value_free> owner_;
};

inline bool operator==(const value &a, std::string_view b) {
    return a.view() == b;
}
inline bool operator!=(const value &a, std::string_view b) {
    return a.view() != b;
}

// Many values, some of which may be absent. Views live as long as this does.
class values {
  public:
    values() = default;
    explicit values(ringdb_values *owned) : owner_(owned) {}
    std::size_t size() const noexcept { return ringdb_values_count(owner_.get()); }
    // Throws std::out_of_range beyond the last.
    std::optional<std::string_view> operator[](std::size_t place) const {
        ringdb_slice s;
        const std::int32_t found = ringdb_values_get(owner_.get(), place, &s);
        if (found < 0)
            throw std::out_of_range("ringdb::values");
        return found ? std::optional(detail::view(s)) : std::nullopt;
    }

  private:
    detail::owner<ringdb_values, ringdb_values_free> owner_;
};

enum class durability : std::int32_t {
    store_default = RINGDB_DURABILITY_DEFAULT,
    none = RINGDB_DURABILITY_NONE,
    process = RINGDB_DURABILITY_PROCESS,
    sync = RINGDB_DURABILITY_SYNC
};

enum class compression : std::int32_t {
    none = RINGDB_COMPRESSION_NONE,
    lz4 = RINGDB_COMPRESSION_LZ4,
    zstd = RINGDB_COMPRESSION_ZSTD
};

// What a compaction filter makes of an entry.
class filter_decision {
  public:
    // It stays as it is.
    static filter_decision keep() { return filter_decision(RINGDB_FILTER_KEEP, {}); }
    // It goes; nothing older of the key comes back.
    static filter_decision remove() { return filter_decision(RINGDB_FILTER_REMOVE, {}); }
    // It has this value; it expires when it would have.
    static filter_decision change(std::string value) { return filter_decision(RINGDB_FILTER_CHANGE, std::move(value)); }

    std::int32_t code() const noexcept { return code_; }
    const std::string &value() const noexcept { return value_; }

  private:
    filter_decision(std::int32_t code, std::string value) : code_(code), value_(std::move(value)) {}
    std::int32_t code_;
    std::string value_;
};

// Settings of a store; each setter returns the options, so that they chain. Said in full in ringdb.h.
using encryption_key = std::array<unsigned char, RINGDB_ENCRYPTION_KEY_BYTES>;

class options {
  public:
    options() : owner_(detail::not_null(ringdb_options_new())) {}
    options &io(const std::string &uri) { return set(ringdb_options_set_io, uri.c_str()); }
    options &cache_bytes(std::uint64_t n) { return set(ringdb_options_set_cache_bytes, n); }
    options &memtable_bytes(std::uint64_t n) { return set(ringdb_options_set_memtable_bytes, n); }
    options &durability(ringdb::durability d) {
        return set(ringdb_options_set_durability, static_cast<std::int32_t>(d));
    }
    options &block_bytes(std::uint32_t n) { return set(ringdb_options_set_block_bytes, n); }
    options &compression(ringdb::compression c) {
        return set(ringdb_options_set_compression, static_cast<std::int32_t>(c));
    }
    options &last_level_compression(ringdb::compression c) {
        return set(ringdb_options_set_last_level_compression, static_cast<std::int32_t>(c));
    }
    options &filter_bits_per_key(std::uint32_t n) { return set(ringdb_options_set_filter_bits_per_key, n); }
    options &background_threads(std::size_t n) { return set(ringdb_options_set_background_threads, n); }
    options &log_segment_bytes(std::uint64_t n) { return set(ringdb_options_set_log_segment_bytes, n); }
    options &table_bytes(std::uint64_t n) { return set(ringdb_options_set_table_bytes, n); }
    options &compaction_bytes_per_second(std::uint64_t n) {
        return set(ringdb_options_set_compaction_bytes_per_second, n);
    }
    options &manifest_bytes(std::uint64_t n) { return set(ringdb_options_set_manifest_bytes, n); }
    options &time_one_in(std::uint32_t n) { return set(ringdb_options_set_time_one_in, n); }
    options &time_to_live(std::chrono::milliseconds ms) {
        return set(ringdb_options_set_time_to_live, static_cast<std::uint64_t>(ms.count()));
    }
    options &direct_reads(bool yes) { return set(ringdb_options_set_direct_reads, yes); }
    options &create_if_missing(bool yes) { return set(ringdb_options_set_create_if_missing, yes); }
    options &recover_damaged_log(bool yes) { return set(ringdb_options_set_recover_damaged_log, yes); }
    options &socket(bool yes) { return set(ringdb_options_set_socket, yes); }
    // Encryption keys by number: what is written is encrypted with the one of the largest.
    options &encryption_keys(const std::map<std::uint32_t, encryption_key> &keys) {
        std::vector<std::uint32_t> numbers;
        std::vector<encryption_key> bytes;
        for (const auto &[number, key] : keys) {
            numbers.push_back(number);
            bytes.push_back(key);
        }
        detail::checked([&](ringdb_error *e) {
            return ringdb_options_set_encryption_keys(owner_.get(), numbers.data(), bytes.data(), numbers.size(), e);
        });
        return *this;
    }
    // TOML text, and a file of it, over what was set before.
    options &parse(const std::string &toml) { return set(ringdb_options_parse, toml.c_str()); }
    options &load(const std::string &path) { return set(ringdb_options_load, path.c_str()); }
    // Registers a merge operator; the rules of ringdb.h for its callbacks hold, but they may throw: what() is why there is
    // none. `merge` is called as std::string(std::string_view key, std::optional<std::string_view> value,
    // const std::vector<std::string_view> &operands).
    template <class Merge>
    options &merge_operator(const std::string &name, Merge merge) {
        return register_merge<Merge, std::nullptr_t>(name, {std::move(merge), nullptr});
    }
    // With a `partial` that keeps operands few, called as std::optional<std::string>(std::string_view key,
    // const std::vector<std::string_view> &operands).
    template <class Merge, class Partial>
    options &merge_operator(const std::string &name, Merge merge, Partial partial) {
        return register_merge<Merge, Partial>(name, {std::move(merge), std::move(partial)});
    }
    // Registers a compaction filter; the rules of ringdb.h for its callback hold, but it may throw: what() is why it cannot
    // say. It is called as filter_decision(const ringdb_filter_context &, std::string_view key, std::string_view value).
    template <class Filter>
    options &compaction_filter(const std::string &name, Filter filter) {
        auto user = std::make_unique<Filter>(std::move(filter));
        ringdb_compaction_filter c = RINGDB_COMPACTION_FILTER_INIT;
        c.name = name.c_str();
        c.user = user.get();
        c.filter = [](void *u, const ringdb_filter_context *context, ringdb_slice key, ringdb_slice value,
                      ringdb_filter_result *result) -> std::int32_t {
            return decide(result, [&]() -> filter_decision {
                return (*static_cast<Filter *>(u))(*context, detail::view(key), detail::view(value));
            });
        };
        c.drop = [](void *u) { delete static_cast<Filter *>(u); };
        detail::checked(
            [&](ringdb_error *e) { return ringdb_options_register_compaction_filter(owner_.get(), &c, e); });
        user.release();
        return *this;
    }
    const ringdb_options *c_handle() const noexcept { return owner_.get(); }

  private:
    // Gives the decision that `make` makes; its exceptions become the reason why there is none.
    template <class Make>
    static std::int32_t decide(ringdb_filter_result *result, Make &&make) noexcept {
        try {
            const filter_decision made = make();
            if (made.code() == RINGDB_FILTER_CHANGE)
                ringdb_filter_result_append(result, made.value().data(), made.value().size(), nullptr);
            return made.code();
        } catch (const std::exception &e) {
            ringdb_filter_result_fail(result, e.what(), nullptr);
        } catch (...) {
            ringdb_filter_result_fail(result, "an exception that is no std::exception", nullptr);
        }
        return RINGDB_FILTER_KEEP;
    }
    template <class Merge, class Partial>
    struct callbacks {
        Merge merge;
        Partial partial;
    };
    static std::vector<std::string_view> views(const ringdb_slice *all, std::size_t count) {
        std::vector<std::string_view> out;
        out.reserve(count);
        for (std::size_t i = 0; i < count; i++)
            out.push_back(detail::view(all[i]));
        return out;
    }
    // Calls `make(append)`, whose exceptions become the reason why there is nothing.
    template <class Make>
    static void answer(ringdb_merge_result *result, Make &&make) noexcept {
        const char *why = "an exception that is no std::exception";
        try {
            make([&](const std::string &made) {
                ringdb_merge_result_append(result, made.data(), made.size(), nullptr);
            });
            return;
        } catch (const std::exception &e) {
            ringdb_merge_result_fail(result, e.what(), nullptr);
        } catch (...) {
            ringdb_merge_result_fail(result, why, nullptr);
        }
    }
    template <class Merge, class Partial>
    options &register_merge(const std::string &name, callbacks<Merge, Partial> both) {
        using kept = callbacks<Merge, Partial>;
        auto user = std::make_unique<kept>(std::move(both));
        ringdb_merge_operator c = RINGDB_MERGE_OPERATOR_INIT;
        c.name = name.c_str();
        c.user = user.get();
        c.merge = [](void *u, ringdb_slice key, const ringdb_slice *value, const ringdb_slice *operands,
                     std::size_t count, ringdb_merge_result *result) {
            answer(result, [&](auto append) {
                const auto before = value ? std::optional(detail::view(*value)) : std::nullopt;
                append(static_cast<kept *>(u)->merge(detail::view(key), before, views(operands, count)));
            });
        };
        if constexpr (!std::is_same_v<Partial, std::nullptr_t>) {
            c.partial_merge = [](void *u, ringdb_slice key, const ringdb_slice *, const ringdb_slice *operands,
                                 std::size_t count, ringdb_merge_result *result) {
                answer(result, [&](auto append) {
                    const std::optional<std::string> made =
                        static_cast<kept *>(u)->partial(detail::view(key), views(operands, count));
                    if (made)
                        append(*made);
                });
            };
        }
        c.drop = [](void *u) { delete static_cast<kept *>(u); };
        detail::checked([&](ringdb_error *e) { return ringdb_options_register_merge_operator(owner_.get(), &c, e); });
        user.release();
        return *this;
    }
    template <class Setter, class T>
    options &set(Setter setter, T value) {
        detail::checked([&](ringdb_error *e) { return setter(owner_.get(), value, e); });
        return *this;
    }
    detail::owner<ringdb_options, ringdb_options_free> owner_;
};

// How to read.
struct read_options {
    bool fill_cache = true;
    std::chrono::microseconds deadline{0}; // none

    ringdb_read_options c() const noexcept {
        ringdb_read_options how = RINGDB_READ_OPTIONS_INIT;
        how.flags = fill_cache ? 0u : static_cast<std::uint32_t>(RINGDB_READ_NO_FILL_CACHE);
        how.deadline_us = detail::microseconds(deadline);
        return how;
    }
};

// How to write.
struct write_options {
    ringdb::durability durability = ringdb::durability::store_default;
    std::chrono::microseconds deadline{0}; // none

    ringdb_write_options c() const noexcept {
        ringdb_write_options how = RINGDB_WRITE_OPTIONS_INIT;
        how.durability = static_cast<std::int32_t>(durability);
        how.deadline_us = detail::microseconds(deadline);
        return how;
    }
};

using pair_view = std::pair<std::string_view, std::string_view>;

// Pairs in the order of their keys, from both ends. Views live until the next step. Once: a second begin() goes on.
class scan {
  public:
    explicit scan(ringdb_iter *owned) : owner_(owned) {}
    std::optional<pair_view> next() { return step(ringdb_iter_next); }
    std::optional<pair_view> next_back() { return step(ringdb_iter_next_back); }

    class iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = pair_view;
        using difference_type = std::ptrdiff_t;
        using pointer = const pair_view *;
        using reference = const pair_view &;
        iterator() = default;
        explicit iterator(scan *of) : of_(of), now_(of->next()) {}
        reference operator*() const { return *now_; }
        pointer operator->() const { return &*now_; }
        iterator &operator++() {
            now_ = of_->next();
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator &a, const iterator &b) { return a.at_end() == b.at_end(); }
        friend bool operator!=(const iterator &a, const iterator &b) { return !(a == b); }

      private:
        bool at_end() const { return !now_; }
        scan *of_ = nullptr;
        std::optional<pair_view> now_;
    };
    iterator begin() { return iterator(this); }
    iterator end() { return {}; }

  private:
    template <class Step>
    std::optional<pair_view> step(Step one) {
        ringdb_slice key, value;
        if (!detail::checked([&](ringdb_error *e) { return one(owner_.get(), &key, &value, e); }))
            return std::nullopt;
        return pair_view(detail::view(key), detail::view(value));
    }
    detail::owner<ringdb_iter, ringdb_iter_free> owner_;
};

// What a callback gets: a value, or why there is none.
template <class T>
class result {
  public:
    explicit result(T value) : value_(std::move(value)) {}
    explicit result(const error &e) : error_(std::make_unique<error>(e)) {}
    explicit operator bool() const noexcept { return !error_; }
    // Why it failed; nullptr if it did not.
    const error *failure() const noexcept { return error_.get(); }
    // The value; throws the failure.
    T take() {
        if (error_)
            throw *error_;
        return std::move(*value_);
    }

  private:
    std::optional<T> value_;
    std::unique_ptr<error> error_;
};

// The end of a write or a sync.
template <>
class result<void> {
  public:
    result() = default;
    explicit result(const error &e) : error_(std::make_unique<error>(e)) {}
    explicit operator bool() const noexcept { return !error_; }
    const error *failure() const noexcept { return error_.get(); }
    void take() const {
        if (error_)
            throw *error_;
    }

  private:
    std::unique_ptr<error> error_;
};

// A request under way. To drop it forgets nothing: the callback is called all the same.
class request {
  public:
    request() = default;
    // True: the callback never was called, never will be, and is destroyed. False: it has been, or is about to be.
    bool cancel() noexcept {
        if (ringdb_request_cancel(owner_.get()) != 1)
            return false;
        if (user_)
            drop_(std::exchange(user_, nullptr));
        return true;
    }

  private:
    friend class view;
    friend class db;
    request(ringdb_request *handle, void *user, void (*drop)(void *)) : owner_(handle), user_(user), drop_(drop) {}

    // Begins a request whose callback owns a copy of `f`, by `call(user, &handle, &error)`.
    template <class F, class Call>
    static request begin(F f, Call &&call) {
        auto user = std::make_unique<F>(std::move(f));
        ringdb_request *handle = nullptr;
        detail::checked([&](ringdb_error *e) { return call(static_cast<void *>(user.get()), &handle, e); });
        return request(handle, user.release(), [](void *u) { delete static_cast<F *>(u); });
    }

    detail::owner<ringdb_request, ringdb_request_free> owner_;
    void *user_ = nullptr;
    void (*drop_)(void *) = nullptr;
};

// An answer to a request of `reads` or `writes`: result.take() throws if the request failed.
template <class T>
struct answer {
    std::uint64_t tag;
    ringdb::result<T> result;
};

// Reads for an event loop.
class reads {
  public:
    explicit reads(ringdb_reads *owned) : owner_(owned) {}
    // False: as many are open as there may be.
    bool submit(std::uint64_t tag, std::string_view key) {
        ringdb_error e;
        const auto code = ringdb_reads_submit(owner_.get(), tag, key.data(), key.size(), &e);
        if (code < 0 && code != RINGDB_WOULD_BLOCK)
            throw error(e);
        return code == RINGDB_OK;
    }
    std::optional<answer<std::optional<value>>> poll() {
        ringdb_error e;
        ringdb_answer a;
        const auto taken = ringdb_reads_poll(owner_.get(), &a, &e);
        if (taken < 0)
            throw error(e);
        if (!taken)
            return std::nullopt;
        using got = result<std::optional<value>>;
        if (a.code < 0)
            return answer<std::optional<value>>{a.tag, got(error(e))};
        return answer<std::optional<value>>{
            a.tag, got(a.code ? std::optional<value>(value(a.value)) : std::optional<value>())};
    }
    std::size_t wait(std::size_t min) {
        std::size_t ready = 0;
        detail::checked([&](ringdb_error *e) { return ringdb_reads_wait(owner_.get(), min, &ready, e); });
        return ready;
    }
    int fd() {
        int out = -1;
        detail::checked([&](ringdb_error *e) { return ringdb_reads_fd(owner_.get(), &out, e); });
        return out;
    }

  private:
    detail::owner<ringdb_reads, ringdb_reads_free> owner_;
};

class snapshot;

// Pairs in ascending order of their keys that become part of a keyspace all at once. Not finished, it leaves nothing.
class ingester {
  public:
    explicit ingester(ringdb_ingester *owned) : owner_(owned) {}
    void add(std::string_view key, std::string_view value) {
        detail::checked([&](ringdb_error *e) {
            return ringdb_ingester_add(owner_.get(), key.data(), key.size(), value.data(), value.size(), e);
        });
    }
    // How many they were.
    std::uint64_t finish() {
        std::uint64_t pairs = 0;
        detail::checked([&](ringdb_error *e) { return ringdb_ingester_finish(owner_.get(), &pairs, e); });
        return pairs;
    }

  private:
    detail::owner<ringdb_ingester, ringdb_ingester_free> owner_;
};

// What stores, keyspaces and snapshots have in common: they are read.
class view {
  public:
    std::optional<value> get(std::string_view key, const read_options &how = {}) const {
        const auto c = how.c();
        auto *out = detail::made<ringdb_value>([&](ringdb_value **place, ringdb_error *e) {
            return ringdb_get(owner_.get(), key.data(), key.size(), &c, place, e);
        });
        return out ? std::optional<value>(value(out)) : std::nullopt;
    }
    bool contains(std::string_view key, const read_options &how = {}) const { return get(key, how).has_value(); }

    // Of any range of what converts to std::string_view.
    template <class Keys>
    values multi_get(const Keys &keys, const read_options &how = {}) const {
        const auto c = how.c();
        const auto all = slices(keys);
        return values(detail::made<ringdb_values>([&](ringdb_values **place, ringdb_error *e) {
            return ringdb_multi_get(owner_.get(), all.data(), all.size(), &c, place, e);
        }));
    }
    values multi_get(std::initializer_list<std::string_view> keys, const read_options &how = {}) const {
        return multi_get<std::initializer_list<std::string_view>>(keys, how);
    }

    // The pairs from `from` on and before `to`; without one there is no bound.
    scan range(std::optional<std::string_view> from = {}, std::optional<std::string_view> to = {},
               const read_options &how = {}) const {
        const auto c = how.c();
        const ringdb_slice f = detail::slice(from.value_or("")), t = detail::slice(to.value_or(""));
        return scan(detail::made<ringdb_iter>([&](ringdb_iter **place, ringdb_error *e) {
            return ringdb_range(owner_.get(), from ? &f : nullptr, to ? &t : nullptr, 0, &c, place, e);
        }));
    }
    scan prefix(std::string_view prefix, const read_options &how = {}) const {
        const auto c = how.c();
        return scan(detail::made<ringdb_iter>([&](ringdb_iter **place, ringdb_error *e) {
            return ringdb_prefix(owner_.get(), prefix.data(), prefix.size(), &c, place, e);
        }));
    }
    // All pairs.
    scan begin_scan() const { return range(); }
    // Writes the pairs of a range as tables into a new or empty directory; a report as JSON text.
    std::string export_range(const std::string &path, std::optional<std::string_view> from = {},
                             std::optional<std::string_view> to = {}) const {
        const ringdb_slice f = detail::slice(from.value_or("")), t = detail::slice(to.value_or(""));
        return value(detail::made<ringdb_value>([&](ringdb_value **place, ringdb_error *e) {
                   return ringdb_export_range(owner_.get(), from ? &f : nullptr, to ? &t : nullptr, 0, path.c_str(),
                                              place, e);
               }))
            .str();
    }

    // Calls `f(ringdb::result<std::optional<ringdb::value>>)` when the value is there; ringdb.h says on which thread.
    // `f` must not throw.
    template <class F>
    request get_async(std::string_view key, F f, const read_options &how = {}) const {
        const auto c = how.c();
        return request::begin(std::move(f), [&](void *user, ringdb_request **handle, ringdb_error *e) {
            return ringdb_get_async(owner_.get(), key.data(), key.size(), &c, got<F>, user, handle, e);
        });
    }
    // Calls `f(ringdb::result<ringdb::values>)`.
    template <class Keys, class F>
    request multi_get_async(const Keys &keys, F f, const read_options &how = {}) const {
        const auto c = how.c();
        const auto all = slices(keys);
        return request::begin(std::move(f), [&](void *user, ringdb_request **handle, ringdb_error *e) {
            return ringdb_multi_get_async(owner_.get(), all.data(), all.size(), &c, got_many<F>, user, handle, e);
        });
    }
    ringdb::reads reads(std::size_t depth, const read_options &how = {}) const {
        const auto c = how.c();
        return ringdb::reads(detail::made<ringdb_reads>([&](ringdb_reads **place, ringdb_error *e) {
            return ringdb_reads_open(owner_.get(), depth, &c, place, e);
        }));
    }

    inline ringdb::snapshot snapshot() const;

    const ringdb_db *c_handle() const noexcept { return owner_.get(); }

  protected:
    explicit view(ringdb_db *owned) : owner_(owned) {}

    template <class Keys>
    static std::vector<ringdb_slice> slices(const Keys &keys) {
        std::vector<ringdb_slice> all;
        for (const auto &key : keys)
            all.push_back(detail::slice(key));
        return all;
    }
    template <class F>
    static void got(void *user, std::int32_t code, ringdb_value *v, const ringdb_error *e) noexcept {
        const std::unique_ptr<F> f(static_cast<F *>(user));
        using type = result<std::optional<value>>;
        if (code < 0)
            (*f)(type(error(*e)));
        else
            (*f)(type(code ? std::optional<value>(value(v)) : std::optional<value>()));
    }
    template <class F>
    static void got_many(void *user, std::int32_t code, ringdb_values *v, const ringdb_error *e) noexcept {
        const std::unique_ptr<F> f(static_cast<F *>(user));
        (*f)(code < 0 ? result<values>(error(*e)) : result<values>(values(v)));
    }

    detail::owner<ringdb_db, ringdb_release> owner_;
};

// A keyspace as it was at one moment.
class snapshot : public view {
  public:
    explicit snapshot(ringdb_db *owned) : view(owned) {}
    // Another keyspace at the same moment.
    std::optional<snapshot> keyspace(const std::string &name) const {
        auto *out = detail::made<ringdb_db>([&](ringdb_db **place, ringdb_error *e) {
            return ringdb_existing_keyspace(owner_.get(), name.c_str(), place, e);
        });
        return out ? std::optional<snapshot>(snapshot(out)) : std::nullopt;
    }
};

inline ringdb::snapshot view::snapshot() const {
    return ringdb::snapshot(detail::made<ringdb_db>(
        [&](ringdb_db **place, ringdb_error *e) { return ringdb_snapshot(owner_.get(), place, e); }));
}

// A named set of keys.
class keyspace : public view {
  public:
    explicit keyspace(ringdb_db *owned) : view(owned) {}
    void put(std::string_view key, std::string_view value) { put_with(key, value, nullptr); }
    void put(std::string_view key, std::string_view value, const write_options &how) {
        const auto c = how.c();
        put_with(key, value, &c);
    }
    // For some time, at least a millisecond: from then on it counts as deleted.
    void put_with_ttl(std::string_view key, std::string_view value, std::chrono::milliseconds ttl,
                      const write_options &how = {}) {
        const auto c = how.c();
        detail::checked([&](ringdb_error *e) {
            return ringdb_put_with_ttl(owner_.get(), key.data(), key.size(), value.data(), value.size(),
                                       detail::milliseconds(ttl), &c, e);
        });
    }
    // Merges an operand into the value, without reading it, by the keyspace's merge operator.
    void merge(std::string_view key, std::string_view operand, const write_options &how = {}) {
        const auto c = how.c();
        detail::checked([&](ringdb_error *e) {
            return ringdb_merge(owner_.get(), key.data(), key.size(), operand.data(), operand.size(), &c, e);
        });
    }
    // Changes settings, as TOML text; those that are not said stay.
    void alter(const std::string &toml) {
        detail::checked([&](ringdb_error *e) { return ringdb_keyspace_alter(owner_.get(), toml.c_str(), e); });
    }
    // The settings in force, as JSON text.
    std::string settings() const {
        return value(detail::made<ringdb_value>([&](ringdb_value **place, ringdb_error *e) {
                   return ringdb_keyspace_settings(owner_.get(), place, e);
               }))
            .str();
    }
    ringdb::ingester ingester() {
        return ringdb::ingester(detail::made<ringdb_ingester>(
            [&](ringdb_ingester **place, ringdb_error *e) { return ringdb_ingester_open(owner_.get(), place, e); }));
    }
    // Ingests all pairs of an export; how many.
    std::uint64_t import_tables(const std::string &path) {
        std::uint64_t pairs = 0;
        detail::checked([&](ringdb_error *e) { return ringdb_import_tables(owner_.get(), path.c_str(), &pairs, e); });
        return pairs;
    }
    void erase(std::string_view key) { erase_with(key, nullptr); }
    void erase(std::string_view key, const write_options &how) {
        const auto c = how.c();
        erase_with(key, &c);
    }
    // Deletes the keys of a range, or those with a prefix, at the same cost however many there are.
    void erase_range(std::optional<std::string_view> from, std::optional<std::string_view> to,
                     const write_options &how = {}) {
        const auto c = how.c();
        const ringdb_slice f = detail::slice(from.value_or("")), t = detail::slice(to.value_or(""));
        detail::checked([&](ringdb_error *e) {
            return ringdb_delete_range(owner_.get(), from ? &f : nullptr, to ? &t : nullptr, 0, &c, e);
        });
    }
    void erase_prefix(std::string_view prefix, const write_options &how = {}) {
        const auto c = how.c();
        detail::checked(
            [&](ringdb_error *e) { return ringdb_delete_prefix(owner_.get(), prefix.data(), prefix.size(), &c, e); });
    }
    // Sets a key to `to` (none: deletes it) if its value is `expected` (none: there is none); whether it was.
    bool compare_and_swap(std::string_view key, std::optional<std::string_view> expected,
                          std::optional<std::string_view> to) {
        const ringdb_slice x = detail::slice(expected.value_or("")), t = detail::slice(to.value_or(""));
        return detail::checked([&](ringdb_error *e) {
                   return ringdb_compare_and_swap(owner_.get(), key.data(), key.size(), expected ? &x : nullptr,
                                                  to ? &t : nullptr, e);
               }) == 1;
    }
    // Compacts the tables that hold a range of keys.
    void compact(std::optional<std::string_view> from = {}, std::optional<std::string_view> to = {}) {
        const ringdb_slice f = detail::slice(from.value_or("")), t = detail::slice(to.value_or(""));
        detail::checked([&](ringdb_error *e) {
            return ringdb_compact(owner_.get(), from ? &f : nullptr, to ? &t : nullptr, 0, e);
        });
    }
    std::string name() const {
        return value(detail::made<ringdb_value>([&](ringdb_value **place, ringdb_error *e) {
                   return ringdb_keyspace_name(owner_.get(), place, e);
               }))
            .str();
    }

  private:
    void put_with(std::string_view key, std::string_view value, const ringdb_write_options *how) {
        detail::checked([&](ringdb_error *e) {
            return ringdb_put(owner_.get(), key.data(), key.size(), value.data(), value.size(), how, e);
        });
    }
    void erase_with(std::string_view key, const ringdb_write_options *how) {
        detail::checked([&](ringdb_error *e) { return ringdb_delete(owner_.get(), key.data(), key.size(), how, e); });
    }
};

// Writes that happen together or not at all.
class batch {
  public:
    batch() : owner_(detail::not_null(ringdb_batch_new())) {}
    // Of the default keyspace.
    batch &put(std::string_view key, std::string_view value) { return put_in(nullptr, key, value); }
    batch &erase(std::string_view key) { return erase_in(nullptr, key); }
    batch &put(const keyspace &in, std::string_view key, std::string_view value) {
        return put_in(in.c_handle(), key, value);
    }
    batch &erase(const keyspace &in, std::string_view key) { return erase_in(in.c_handle(), key); }
    batch &put_with_ttl(std::string_view key, std::string_view value, std::chrono::milliseconds ttl) {
        return put_with_ttl_in(nullptr, key, value, ttl);
    }
    batch &put_with_ttl(const keyspace &in, std::string_view key, std::string_view value,
                        std::chrono::milliseconds ttl) {
        return put_with_ttl_in(in.c_handle(), key, value, ttl);
    }
    batch &merge(std::string_view key, std::string_view operand) { return merge_in(nullptr, key, operand); }
    batch &merge(const keyspace &in, std::string_view key, std::string_view operand) {
        return merge_in(in.c_handle(), key, operand);
    }
    batch &erase_range(const keyspace &in, std::optional<std::string_view> from, std::optional<std::string_view> to) {
        const ringdb_slice f = detail::slice(from.value_or("")), t = detail::slice(to.value_or(""));
        detail::checked([&](ringdb_error *e) {
            return ringdb_batch_delete_range(owner_.get(), in.c_handle(), from ? &f : nullptr, to ? &t : nullptr, 0, e);
        });
        return *this;
    }
    batch &erase_prefix(const keyspace &in, std::string_view prefix) {
        detail::checked([&](ringdb_error *e) {
            return ringdb_batch_delete_prefix(owner_.get(), in.c_handle(), prefix.data(), prefix.size(), e);
        });
        return *this;
    }
    void clear() {
        detail::checked([&](ringdb_error *e) { return ringdb_batch_clear(owner_.get(), e); });
    }
    std::size_t size() const {
        std::size_t count = 0;
        detail::checked([&](ringdb_error *e) { return ringdb_batch_size(owner_.get(), &count, nullptr, e); });
        return count;
    }
    bool empty() const { return size() == 0; }
    const ringdb_batch *c_handle() const noexcept { return owner_.get(); }

  private:
    batch &put_in(const ringdb_db *in, std::string_view key, std::string_view value) {
        detail::checked([&](ringdb_error *e) {
            return ringdb_batch_put(owner_.get(), in, key.data(), key.size(), value.data(), value.size(), e);
        });
        return *this;
    }
    batch &put_with_ttl_in(const ringdb_db *in, std::string_view key, std::string_view value,
                           std::chrono::milliseconds ttl) {
        detail::checked([&](ringdb_error *e) {
            return ringdb_batch_put_with_ttl(owner_.get(), in, key.data(), key.size(), value.data(), value.size(),
                                             detail::milliseconds(ttl), e);
        });
        return *this;
    }
    batch &merge_in(const ringdb_db *in, std::string_view key, std::string_view operand) {
        detail::checked([&](ringdb_error *e) {
            return ringdb_batch_merge(owner_.get(), in, key.data(), key.size(), operand.data(), operand.size(), e);
        });
        return *this;
    }
    batch &erase_in(const ringdb_db *in, std::string_view key) {
        detail::checked(
            [&](ringdb_error *e) { return ringdb_batch_delete(owner_.get(), in, key.data(), key.size(), e); });
        return *this;
    }
    detail::owner<ringdb_batch, ringdb_batch_free> owner_;
};

// Reads and writes that happen at one moment, or not at all; see ringdb.h. Not committed, it has done nothing.
class transaction {
  public:
    explicit transaction(ringdb_transaction *owned) : owner_(owned) {}
    std::optional<value> get(std::string_view key) { return get_in(nullptr, key); }
    std::optional<value> get(const keyspace &in, std::string_view key) { return get_in(in.c_handle(), key); }
    void put(std::string_view key, std::string_view value) { put_in(nullptr, key, value); }
    void put(const keyspace &in, std::string_view key, std::string_view value) { put_in(in.c_handle(), key, value); }
    void erase(std::string_view key) { erase_in(nullptr, key); }
    void erase(const keyspace &in, std::string_view key) { erase_in(in.c_handle(), key); }
    // Is no read: transactions that merge into one key do not conflict.
    void merge(std::string_view key, std::string_view operand) { merge_in(nullptr, key, operand); }
    void merge(const keyspace &in, std::string_view key, std::string_view operand) {
        merge_in(in.c_handle(), key, operand);
    }
    // Locks keys until the transaction has ended, and goes on from now. Waits so long at most, 0: five seconds; throws an
    // error with RINGDB_KEY_LOCKED then, or if waiting would never end.
    void lock(std::initializer_list<std::string_view> keys, std::chrono::microseconds wait = {}) {
        lock_in(nullptr, keys, wait);
    }
    void lock(const keyspace &in, std::initializer_list<std::string_view> keys, std::chrono::microseconds wait = {}) {
        lock_in(in.c_handle(), keys, wait);
    }
    // To be destroyed before the commit.
    scan range(std::optional<std::string_view> from = {}, std::optional<std::string_view> to = {}) {
        return range_in(nullptr, from, to);
    }
    scan range(const keyspace &in, std::optional<std::string_view> from = {}, std::optional<std::string_view> to = {}) {
        return range_in(in.c_handle(), from, to);
    }
    // False: what was read has been written since; nothing of it was written, begin again.
    [[nodiscard]] bool commit(const write_options &how = {}) {
        const auto c = how.c();
        ringdb_error e;
        const auto code = ringdb_transaction_commit(owner_.get(), &c, &e);
        if (code < 0 && code != RINGDB_CONFLICT)
            throw error(e);
        return code == RINGDB_OK;
    }

  private:
    std::optional<value> get_in(const ringdb_db *in, std::string_view key) {
        auto *out = detail::made<ringdb_value>([&](ringdb_value **place, ringdb_error *e) {
            return ringdb_transaction_get(owner_.get(), in, key.data(), key.size(), place, e);
        });
        return out ? std::optional<value>(value(out)) : std::nullopt;
    }
    void put_in(const ringdb_db *in, std::string_view key, std::string_view value) {
        detail::checked([&](ringdb_error *e) {
            return ringdb_transaction_put(owner_.get(), in, key.data(), key.size(), value.data(), value.size(), e);
        });
    }
    void lock_in(const ringdb_db *in, std::initializer_list<std::string_view> keys, std::chrono::microseconds wait) {
        std::vector<ringdb_slice> all;
        for (const auto key : keys)
            all.push_back(detail::slice(key));
        detail::checked([&](ringdb_error *e) {
            return ringdb_transaction_lock(owner_.get(), in, all.data(), all.size(), detail::microseconds(wait), e);
        });
    }
    void merge_in(const ringdb_db *in, std::string_view key, std::string_view operand) {
        detail::checked([&](ringdb_error *e) {
            return ringdb_transaction_merge(owner_.get(), in, key.data(), key.size(), operand.data(), operand.size(),
                                            e);
        });
    }
    void erase_in(const ringdb_db *in, std::string_view key) {
        detail::checked(
            [&](ringdb_error *e) { return ringdb_transaction_delete(owner_.get(), in, key.data(), key.size(), e); });
    }
    scan range_in(const ringdb_db *in, std::optional<std::string_view> from, std::optional<std::string_view> to) {
        const ringdb_slice f = detail::slice(from.value_or("")), t = detail::slice(to.value_or(""));
        return scan(detail::made<ringdb_iter>([&](ringdb_iter **place, ringdb_error *e) {
            return ringdb_transaction_range(owner_.get(), in, from ? &f : nullptr, to ? &t : nullptr, 0, place, e);
        }));
    }
    detail::owner<ringdb_transaction, ringdb_transaction_free> owner_;
};

// Writes for an event loop.
class writes {
  public:
    explicit writes(ringdb_writes *owned) : owner_(owned) {}
    // False: as many are open as there may be.
    bool submit(std::uint64_t tag, const batch &b, const write_options &how = {}) {
        const auto c = how.c();
        return submitted([&](ringdb_error *e) { return ringdb_writes_submit(owner_.get(), tag, b.c_handle(), &c, e); });
    }
    bool sync(std::uint64_t tag) {
        return submitted([&](ringdb_error *e) { return ringdb_writes_sync(owner_.get(), tag, e); });
    }
    std::optional<answer<void>> poll() {
        ringdb_error e;
        ringdb_answer a;
        const auto taken = ringdb_writes_poll(owner_.get(), &a, &e);
        if (taken < 0)
            throw error(e);
        if (!taken)
            return std::nullopt;
        return answer<void>{a.tag, a.code < 0 ? result<void>(error(e)) : result<void>()};
    }
    std::size_t wait(std::size_t min) {
        std::size_t ready = 0;
        detail::checked([&](ringdb_error *e) { return ringdb_writes_wait(owner_.get(), min, &ready, e); });
        return ready;
    }
    int fd() {
        int out = -1;
        detail::checked([&](ringdb_error *e) { return ringdb_writes_fd(owner_.get(), &out, e); });
        return out;
    }

  private:
    template <class Call>
    bool submitted(Call &&call) {
        ringdb_error e;
        const auto code = call(&e);
        if (code < 0 && code != RINGDB_WOULD_BLOCK)
            throw error(e);
        return code == RINGDB_OK;
    }
    detail::owner<ringdb_writes, ringdb_writes_free> owner_;
};

// A store; its own calls are those of its default keyspace. The destructor closes it without a flush (what the log
// holds survives) if nothing else keeps it open; close() flushes, and tells of failures.
class db : public keyspace {
  public:
    static db open(const std::string &path) { return opened(ringdb_open, path, nullptr); }
    static db open(const std::string &path, const options &o) { return opened(ringdb_open, path, o.c_handle()); }
    static db open_read_only(const std::string &path) { return opened(ringdb_open_read_only, path, nullptr); }
    static db open_read_only(const std::string &path, const options &o) {
        return opened(ringdb_open_read_only, path, o.c_handle());
    }
    // Flushes and closes; all that is left of the store fails with RINGDB_CLOSED from then on.
    void close() { call(ringdb_close); }

    // Made if missing.
    ringdb::keyspace keyspace(const std::string &name) {
        return ringdb::keyspace(detail::made<ringdb_db>(
            [&](ringdb_db **place, ringdb_error *e) { return ringdb_keyspace(owner_.get(), name.c_str(), place, e); }));
    }
    // Made if missing, or altered, to have these settings: TOML text, as "merge_operator = 'add'".
    ringdb::keyspace keyspace(const std::string &name, const std::string &toml) {
        return ringdb::keyspace(detail::made<ringdb_db>([&](ringdb_db **place, ringdb_error *e) {
            return ringdb_keyspace_with(owner_.get(), name.c_str(), toml.c_str(), place, e);
        }));
    }
    std::optional<ringdb::keyspace> existing_keyspace(const std::string &name) const {
        auto *out = detail::made<ringdb_db>([&](ringdb_db **place, ringdb_error *e) {
            return ringdb_existing_keyspace(owner_.get(), name.c_str(), place, e);
        });
        return out ? std::optional<ringdb::keyspace>(ringdb::keyspace(out)) : std::nullopt;
    }
    // Whether there was one.
    bool drop_keyspace(const std::string &name) {
        return detail::checked([&](ringdb_error *e) { return ringdb_drop_keyspace(owner_.get(), name.c_str(), e); }) ==
               1;
    }
    std::vector<std::string> keyspaces() const {
        const values names(detail::made<ringdb_values>(
            [&](ringdb_values **place, ringdb_error *e) { return ringdb_keyspaces(owner_.get(), place, e); }));
        std::vector<std::string> out;
        for (std::size_t i = 0; i < names.size(); i++)
            out.emplace_back(*names[i]);
        return out;
    }

    // The batch stays as it is.
    void write(const batch &b, const write_options &how = {}) {
        const auto c = how.c();
        detail::checked([&](ringdb_error *e) { return ringdb_write(owner_.get(), b.c_handle(), &c, e); });
    }
    // Calls `f(ringdb::result<void>)`. `f` must not throw.
    template <class F>
    request write_async(const batch &b, F f, const write_options &how = {}) {
        const auto c = how.c();
        return request::begin(std::move(f), [&](void *user, ringdb_request **handle, ringdb_error *e) {
            return ringdb_write_async(owner_.get(), b.c_handle(), &c, done<F>, user, handle, e);
        });
    }
    template <class F>
    request sync_async(F f) {
        return request::begin(std::move(f), [&](void *user, ringdb_request **handle, ringdb_error *e) {
            return ringdb_sync_async(owner_.get(), done<F>, user, handle, e);
        });
    }
    ringdb::transaction transaction() {
        return ringdb::transaction(detail::made<ringdb_transaction>([&](ringdb_transaction **place, ringdb_error *e) {
            return ringdb_transaction_begin(owner_.get(), place, e);
        }));
    }
    ringdb::writes writes(std::size_t depth) {
        return ringdb::writes(detail::made<ringdb_writes>(
            [&](ringdb_writes **place, ringdb_error *e) { return ringdb_writes_open(owner_.get(), depth, place, e); }));
    }

    void sync() { call(ringdb_sync); }
    void flush() { call(ringdb_flush); }
    // Writes every table anew, as it is written now.
    void rewrite() { call(ringdb_rewrite); }
    void wait_idle() { call(ringdb_wait_idle); }
    void checkpoint(const std::string &path) {
        detail::checked([&](ringdb_error *e) { return ringdb_checkpoint(owner_.get(), path.c_str(), e); });
    }
    // JSON text.
    std::string stats() const {
        return value(detail::made<ringdb_value>(
                         [&](ringdb_value **place, ringdb_error *e) { return ringdb_stats(owner_.get(), place, e); }))
            .str();
    }
    // Text for Prometheus, or OpenMetrics.
    std::string metrics(bool open_metrics = false) const {
        return value(detail::made<ringdb_value>([&](ringdb_value **place, ringdb_error *e) {
                   return ringdb_metrics(owner_.get(), open_metrics, place, e);
               }))
            .str();
    }
    // Whether all is well, and a report as JSON text.
    std::pair<bool, std::string> verify() const {
        ringdb_value *report = nullptr;
        const auto wrong = detail::checked([&](ringdb_error *e) { return ringdb_verify(owner_.get(), &report, e); });
        return {wrong == 0, value(report).str()};
    }

  private:
    explicit db(ringdb_db *owned) : ringdb::keyspace(owned) {}
    template <class Open>
    static db opened(Open open, const std::string &path, const ringdb_options *o) {
        return db(detail::made<ringdb_db>(
            [&](ringdb_db **place, ringdb_error *e) { return open(path.c_str(), o, place, e); }));
    }
    template <class Call>
    void call(Call one) {
        detail::checked([&](ringdb_error *e) { return one(owner_.get(), e); });
    }
    template <class F>
    static void done(void *user, std::int32_t code, const ringdb_error *e) noexcept {
        const std::unique_ptr<F> f(static_cast<F *>(user));
        (*f)(code < 0 ? result<void>(error(*e)) : result<void>());
    }
};

} // namespace ringdb

#endif
