// The C++ interface. Usage: wrapper URI DIRECTORY
#include <ringdb.hpp>

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>

namespace {

using namespace std::string_literals;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #condition);                             \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

// What a call throws.
template <class F>
ringdb::error thrown(F f) {
    try {
        f();
    } catch (const ringdb::error &e) {
        return e;
    }
    std::fprintf(stderr, "nothing was thrown\n");
    std::exit(1);
}

ringdb::options small(const std::string &uri) {
    ringdb::options o;
    o.io(uri).cache_bytes(2 << 20).memtable_bytes(256 << 10).direct_reads(true);
    return o;
}

std::string key_of(int i) {
    char key[16];
    std::snprintf(key, sizeof key, "key%06d", i);
    return key;
}

void the_calls_that_wait(const std::string &uri, const std::string &dir) {
    auto db = ringdb::db::open(dir + "/a", small(uri));
    db.put("apple", "red");
    db.put("pear", "green", {ringdb::durability::sync, std::chrono::seconds(60)});
    CHECK(*db.get("apple") == "red" && !db.get("plum") && db.contains("pear"));
    CHECK(db.get("pear", {false, std::chrono::seconds(60)})->str() == "green");
    db.erase("apple");
    CHECK(!db.contains("apple") && db.name() == "default");
    db.put(""s, "\0\xff"s + std::string(1000, 'x'));
    CHECK(db.get("")->size() == 2 + 1000);
    db.erase("", {ringdb::durability::none, {}});

    auto users = db.keyspace("users");
    ringdb::batch batch;
    batch.put("a", "1").put(users, "u", "2").erase("pear").erase(users, "none");
    CHECK(batch.size() == 4);
    db.write(batch);
    db.write(batch, {ringdb::durability::sync, {}});
    CHECK(users.get("u")->view() == "2" && !db.contains("pear"));
    batch.clear();
    CHECK(batch.empty() && db.keyspaces() == std::vector<std::string>{"users"});

    db.put("b", "2"), db.put("c", "3");
    const auto then = db.snapshot();
    db.erase("b"), users.put("u", "9");
    std::string seen;
    for (const auto &[key, value] : then.range())
        seen.append(key).append("=").append(value).append(" ");
    CHECK(seen == "a=1 b=2 c=3 ");
    seen.clear();
    for (const auto &[key, value] : db.range("b"))
        seen.append(key).append(value);
    CHECK(seen == "c3");
    auto both = then.range("a", "c");
    CHECK(both.next_back()->first == "b" && both.next()->first == "a" && !both.next() && !both.next_back());
    CHECK(db.prefix("c").next()->second == "3" && db.prefix("x").begin() == ringdb::scan::iterator());
    CHECK(then.keyspace("users")->get("u")->view() == "2" && !then.keyspace("none"));
    CHECK(!db.existing_keyspace("none") && db.existing_keyspace("users"));

    const auto found = then.multi_get({"a", "x", "c"});
    CHECK(found.size() == 3 && found[0] == "1" && !found[1] && found[2] == "3");
    CHECK(db.multi_get(std::vector<std::string>{"b", "c"})[1] == "3" && db.multi_get({}).size() == 0);
    try {
        (void)found[3];
        CHECK(false);
    } catch (const std::out_of_range &) {
    }

    db.flush(), db.compact(), db.compact("a", "b"), db.wait_idle(), db.sync();
    CHECK(db.verify().first && db.stats().find("\"table_entries\"") != std::string::npos);
    const auto scraped = db.metrics(), open = db.metrics(true);
    CHECK(scraped.find("# TYPE ringdb_write_batches_total counter\n") != std::string::npos);
    CHECK(scraped.find("# EOF") == std::string::npos && open.rfind("\n# EOF\n") == open.size() - 7);
    db.checkpoint(dir + "/copy");
    CHECK(ringdb::db::open_read_only(dir + "/copy", small(uri)).contains("c"));
    CHECK(db.drop_keyspace("users") && !db.drop_keyspace("users"));
    CHECK(thrown([&] { users.put("u", "1"); }).code() == RINGDB_KEYSPACE_DROPPED);

    const ringdb::encryption_key first{1, 2}, second{3, 4};
    {
        auto secret = ringdb::db::open(dir + "/secret", small(uri).encryption_keys({{1, first}}));
        secret.put("k", "v");
        secret.close();
    }
    CHECK(thrown([&] { ringdb::db::open(dir + "/secret", small(uri)); }).code() == RINGDB_ENCRYPTION_KEY);
    {
        auto secret = ringdb::db::open(dir + "/secret", small(uri).encryption_keys({{1, first}, {2, second}}));
        secret.rewrite();
    }
    CHECK(*ringdb::db::open(dir + "/secret", small(uri).encryption_keys({{2, second}})).get("k") == "v");

    // Owners move.
    auto moved = std::move(db);
    CHECK(moved.contains("c"));
    moved.close();
    const auto e = thrown([&] { moved.get("c"); });
    CHECK(e.code() == RINGDB_CLOSED && e.kind() == ringdb::kind::stop && e.os_errno() == 0);
    CHECK(std::string(e.what()) == "the store is closed");
}

void what_is_wrong_is_thrown(const std::string &uri, const std::string &dir) {
    ringdb::options o;
    o.block_bytes(5000);
    CHECK(thrown([&] { ringdb::db::open(dir + "/b", o); }).kind() == ringdb::kind::fix_call);
    o.block_bytes(4096).durability(ringdb::durability::process).compression(ringdb::compression::lz4);
    o.last_level_compression(ringdb::compression::zstd)
        .filter_bits_per_key(12)
        .background_threads(2)
        .table_bytes(1 << 20)
        .compaction_bytes_per_second(64 << 20);
    o.log_segment_bytes(1 << 20)
        .manifest_bytes(1 << 20)
        .time_one_in(16)
        .time_to_live(std::chrono::hours(1))
        .recover_damaged_log(false)
        .socket(false)
        .create_if_missing(false)
        .io(uri);
    CHECK(thrown([&] { ringdb::db::open(dir + "/b", o); }).code() == RINGDB_NO_STORE);
    CHECK(thrown([&] { o.durability(ringdb::durability::store_default); }).code() == RINGDB_INVALID_ARGUMENT);
    auto db = ringdb::db::open(dir + "/b", o.create_if_missing(true));
    CHECK(thrown([&] { ringdb::db::open(dir + "/b"); }).kind() == ringdb::kind::retry);
    CHECK(thrown([&] { db.put(std::string(100000, 'x'), ""); }).code() == RINGDB_INVALID_ARGUMENT);
    CHECK(thrown([&] { db.range({}, {}, {true, std::chrono::seconds(1)}); }).kind() == ringdb::kind::fix_call);
    // A moved-from object is an error, no crash.
    auto moved = std::move(db);
    CHECK(thrown([&] { db.put("k", "v"); }).code() == RINGDB_INVALID_ARGUMENT);
    CHECK(thrown([&] { (void)db.get("k"); }).code() == RINGDB_INVALID_ARGUMENT);
}

void transactions(const std::string &uri, const std::string &dir) {
    auto db = ringdb::db::open(dir + "/t", small(uri).parse("compression = 'lz4'"));
    CHECK(thrown([&] { small(uri).load(dir + "/none.toml"); }).code() == RINGDB_NOT_FOUND);
    auto users = db.keyspace("users");
    // Two threads count in one key; a conflict begins again.
    std::atomic<int> conflicts{0};
    const auto count = [&] {
        for (int i = 0; i < 200; i++)
            for (;;) {
                auto tx = db.transaction();
                const auto old = tx.get(users, "n");
                tx.put(users, "n", std::to_string(old ? std::stoi(old->str()) + 1 : 1));
                if (tx.commit())
                    break;
                conflicts++;
            }
    };
    std::thread other(count);
    count();
    other.join();
    CHECK(users.get("n")->view() == "400");
    {
        auto tx = db.transaction();
        tx.put("a", "1"), tx.put("b", "2"), tx.erase("a"), tx.erase(users, "n");
        std::string seen;
        for (const auto &[key, value] : tx.range())
            seen.append(key).append(value);
        CHECK(seen == "b2" && tx.get("b") && !tx.get("a") && !tx.range(users).next());
    }
    CHECK(!db.contains("b") && users.contains("n"));
    CHECK(db.compare_and_swap("c", {}, "1") && !db.compare_and_swap("c", {}, "2") && db.compare_and_swap("c", "1", {}));
    db.put("x1", ""), db.put("x2", ""), db.put("y", "");
    db.erase_prefix("x");
    CHECK(!db.contains("x1") && db.contains("y"));
    db.erase_range("a", {}, {ringdb::durability::sync, {}});
    CHECK(!db.range().next());
    db.write(ringdb::batch().erase_range(users, {}, {}).erase_prefix(users, "m").put(users, "m", "1"));
    CHECK(!users.contains("n") && users.contains("m"));
}

// Counts what is called; says when so many were.
class latch {
  public:
    explicit latch(int n) : left_(n) {}
    void down() {
        const std::lock_guard<std::mutex> guard(lock_);
        if (--left_ == 0)
            zero_.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> guard(lock_);
        zero_.wait(guard, [&] { return left_ == 0; });
    }

  private:
    std::mutex lock_;
    std::condition_variable zero_;
    int left_;
};

void asynchronous(const std::string &uri, const std::string &dir) {
    constexpr int keys = 3000;
    {
        auto db = ringdb::db::open(dir + "/c", small(uri));
        latch written(keys + 1);
        ringdb::batch batch;
        for (int i = 0; i < keys; i++) {
            batch.clear();
            batch.put(key_of(i), std::string(200, static_cast<char>('a' + i % 26)));
            db.write_async(batch, [&](ringdb::result<void> r) {
                r.take();
                written.down();
            });
        }
        db.sync_async([&](ringdb::result<void> r) {
            CHECK(r && !r.failure());
            written.down();
        });
        written.wait();
        db.close();
    }
    auto db = ringdb::db::open(dir + "/c", small(uri));
    latch all(keys + 100 + 1);
    std::atomic<int> right{0};
    for (int i = 0; i < keys + 100; i++)
        // A callback may own what cannot be copied.
        db.get_async(key_of(i),
                     [&, i, owned = std::make_unique<int>(i)](ringdb::result<std::optional<ringdb::value>> r) {
                         const auto value = r.take();
                         right += i < keys ? value && value->view()[0] == 'a' + i % 26 && *owned == i : !value;
                         all.down();
                     });
    std::vector<std::string> names{key_of(1), "none", key_of(2)};
    db.multi_get_async(names, [&](ringdb::result<ringdb::values> r) {
        const auto values = r.take();
        right += values[0] && !values[1] && (*values[2])[0] == 'c';
        all.down();
    });
    all.wait();
    CHECK(right == keys + 100 + 1);

    // Cancelled, or answered: what the callback owns is destroyed once.
    db = (db.close(), ringdb::db::open(dir + "/c", small(uri)));
    auto token = std::make_shared<int>(0);
    std::atomic<int> answered{0};
    int cancelled = 0;
    std::vector<ringdb::request> requests;
    for (int i = 0; i < keys; i++)
        requests.push_back(db.get_async(key_of(i), [&, token](auto) { answered++; }));
    for (auto &request : requests)
        cancelled += request.cancel();
    CHECK(cancelled == 0 || requests.size() == keys);
    db.close();
    CHECK(answered + cancelled == keys && token.use_count() == 1);
    requests.clear();
    int closed = 0;
    db.get_async("k", [&](auto r) { closed += r.failure() && r.failure()->code() == RINGDB_CLOSED; });
    CHECK(closed == 1);
}

void event_loops(const std::string &uri, const std::string &dir) {
    auto db = ringdb::db::open(dir + "/c", small(uri));
    auto reads = db.snapshot().reads(32);
    auto writes = db.writes(32);
    std::vector<bool> seen(4000);
    int next = 0, got = 0, written = 0, begun = 0;
    while (got < 4000 || written < 300) {
        while (next < 4000 && reads.submit(static_cast<std::uint64_t>(next), key_of(next)))
            next++;
        while (begun < 300 && (begun % 50 ? writes.submit(1, ringdb::batch().put(key_of(9000 + begun), "w"),
                                                          {ringdb::durability::sync, {}})
                                          : writes.sync(2)))
            begun++;
        int before = got + written;
        while (auto answer = reads.poll()) {
            const auto value = answer->result.take();
            CHECK(value.has_value() == (answer->tag < 3000) && !seen[answer->tag]);
            seen[answer->tag] = true;
            got++;
        }
        while (auto answer = writes.poll())
            answer->result.take(), written++;
        pollfd fds[2] = {{reads.fd(), POLLIN, 0}, {writes.fd(), POLLIN, 0}};
        if (got + written == before)
            CHECK(::poll(fds, 2, 30000) > 0);
    }
    CHECK(reads.wait(1) == 0 && writes.wait(1) == 0 && db.contains(key_of(9001)));
    CHECK(thrown([&] { db.reads(1, {true, std::chrono::seconds(1)}); }).kind() == ringdb::kind::fix_call);
}

void merges_times_to_live_and_tables(const std::string &uri, const std::string &dir) {
    auto dropped = std::make_shared<int>(0);
    {
        auto o = small(uri);
        using operands = std::vector<std::string_view>;
        o.merge_operator(
             "longest",
             [dropped](std::string_view key, std::optional<std::string_view> value, const operands &all) {
                 if (key == "throws")
                     throw std::runtime_error("not this one");
                 std::string_view best = value.value_or("");
                 for (const auto one : all)
                     best = one.size() > best.size() ? one : best;
                 return std::string(best);
             },
             [](std::string_view, const operands &all) -> std::optional<std::string> {
                 std::string_view best;
                 for (const auto one : all)
                     best = one.size() > best.size() ? one : best;
                 return std::string(best);
             })
            .merge_operator(
                "throws ints",
                [](std::string_view, std::optional<std::string_view>, const operands &) -> std::string { throw 5; });
        auto db = ringdb::db::open(dir + "/m", o);
        CHECK(dropped.use_count() == 2);
        auto names = db.keyspace("names", "merge_operator = 'longest'");
        auto ints = db.keyspace("ints", "merge_operator = 'throws ints'");
        CHECK(names.settings().find("longest") != std::string::npos);
        names.put("pear", "conference");
        for (const auto *text : {"a", "williams", "comice", "something long"})
            names.merge("pear", text);
        ringdb::batch b;
        b.merge(names, "apple", "boskoop")
            .merge(names, "apple", "elstar")
            .put_with_ttl("gone", "x", std::chrono::milliseconds(1));
        b.put_with_ttl(names, "stays", "x", std::chrono::hours(1));
        db.write(b);
        auto tx = db.transaction(), other = db.transaction();
        tx.merge(names, "apple", "golden delicious");
        other.merge(names, "apple", "idared");
        CHECK(*other.get(names, "apple") == "boskoop");
        CHECK(tx.commit() && !other.commit());
        CHECK(*names.get("pear") == "something long" && *names.get("apple") == "golden delicious");
        auto locks = db.transaction(), waits = db.transaction();
        locks.lock({"k", "l"});
        locks.lock(names, {"pear"}, std::chrono::seconds(1));
        CHECK(thrown([&] { waits.lock(names, {"pear"}, std::chrono::microseconds(1)); }).code() == RINGDB_KEY_LOCKED);
        CHECK(locks.commit());
        waits.lock({"k"});
        db.flush();
        CHECK(*names.get("pear") == "something long" && names.contains("stays"));
        names.put_with_ttl("late", "x", std::chrono::milliseconds(1), {ringdb::durability::sync, {}});
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        CHECK(!names.contains("late") && !db.contains("gone"));
        names.merge("throws", "x");
        const auto e = thrown([&] { (void)names.get("throws"); });
        CHECK(e.code() == RINGDB_INVALID_ARGUMENT && std::string(e.what()).find("not this one") != std::string::npos);
        ints.merge("k", "x", {ringdb::durability::process, {}});
        CHECK(thrown([&] { (void)ints.get("k"); }).code() == RINGDB_INVALID_ARGUMENT);
        CHECK(thrown([&] { db.merge("k", "x"); }).code() == RINGDB_INVALID_ARGUMENT);
        CHECK(thrown([&] { db.put_with_ttl("k", "x", std::chrono::milliseconds(-1)); }).kind() ==
              ringdb::kind::fix_call);
        names.erase("throws");

        auto squares = db.keyspace("squares", "");
        {
            auto ingester = squares.ingester();
            for (int i = 0; i < 1000; i++)
                ingester.add(key_of(i), std::to_string(i * i));
            CHECK(!squares.contains(key_of(3)) && ingester.finish() == 1000);
        }
        CHECK(*squares.get(key_of(999)) == "998001");
        CHECK(squares.snapshot().export_range(dir + "/exported", key_of(10), key_of(20)).find("10") !=
              std::string::npos);
        auto there = db.keyspace("there", "compression = 'lz4'");
        CHECK(there.import_tables(dir + "/exported") == 10 && *there.get(key_of(12)) == "144");
        there.alter("time_to_live = '1 h'");
        CHECK(thrown([&] { there.alter("time_to_live = 'soon'"); }).code() == RINGDB_INVALID_ARGUMENT);
        db.close();
        CHECK(dropped.use_count() == 2);
    }
    CHECK(dropped.use_count() == 1);
}

void compaction_filters(const std::string &uri, const std::string &dir) {
    using decision = ringdb::filter_decision;
    auto dropped = std::make_shared<int>(0);
    {
        std::function<decision(const ringdb_filter_context &, std::string_view, std::string_view)> by_value =
            [dropped](const ringdb_filter_context &context, std::string_view, std::string_view value) {
                CHECK(context.last_level == (context.level == 6));
                return value == "old"     ? decision::remove()
                       : value == "new"   ? decision::change("newer")
                       : value == "empty" ? decision::change("")
                                          : decision::keep();
            };
        auto o = small(uri);
        o.compaction_filter("values", std::move(by_value))
            .compaction_filter("throws",
                               [](const ringdb_filter_context &, std::string_view key, std::string_view) -> decision {
                                   if (key == "int")
                                       throw 5;
                                   throw std::runtime_error("not this one");
                               });
        auto db = ringdb::db::open(dir + "/f", o);
        CHECK(dropped.use_count() == 2);
        auto values = db.keyspace("values", "compaction_filter = 'values'");
        auto throws = db.keyspace("throws", "compaction_filter = 'throws'");
        CHECK(thrown([&] { db.keyspace("x", "compaction_filter = 'unknown'"); }).kind() == ringdb::kind::fix_call);
        for (const auto *text : {"old", "new", "kept", "empty"})
            values.put(text, text);
        values.compact();
        CHECK(!values.contains("old") && *values.get("new") == "newer" && *values.get("kept") == "kept");
        CHECK(values.get("empty")->size() == 0);
        CHECK(db.stats().find("\"compaction_filter_seen\": 4") != std::string::npos);
        throws.put("a", "old");
        throws.compact();
        CHECK(db.stats().find("not this one") != std::string::npos && *throws.get("a") == "old");
        throws.put("int", "old");
        throws.erase("a");
        throws.compact();
        CHECK(db.stats().find("no std::exception") != std::string::npos && *throws.get("int") == "old");
        db.close();
        CHECK(dropped.use_count() == 2);
    }
    CHECK(dropped.use_count() == 1);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    try {
        (void)ringdb::db::open(argv[2] + "/probe"s, small(argv[1]));
    } catch (const ringdb::error &e) {
        if (e.code() != RINGDB_UNSUPPORTED)
            throw;
        return std::printf("skipped: %s\n", e.what()), 0;
    }
    the_calls_that_wait(argv[1], argv[2]);
    what_is_wrong_is_thrown(argv[1], argv[2]);
    transactions(argv[1], argv[2]);
    merges_times_to_live_and_tables(argv[1], argv[2]);
    compaction_filters(argv[1], argv[2]);
    asynchronous(argv[1], argv[2]);
    event_loops(argv[1], argv[2]);
    std::printf("passed\n");
    return 0;
}
