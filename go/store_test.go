// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t testing.TB, options ...Option) *DB {
	t.Helper()
	db, err := Open(t.TempDir(), append([]Option{CacheBytes(32 << 20)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil && !errors.Is(err, Closed) {
			t.Error(err)
		}
	})
	return db
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func got[T any](t testing.TB) func(value T, err error) T {
	return func(value T, err error) T {
		t.Helper()
		must(t, err)
		return value
	}
}

func is(t testing.TB, err error, wanted ...error) {
	t.Helper()
	for _, target := range wanted {
		if !errors.Is(err, target) {
			t.Fatalf("%v is not %v", err, target)
		}
	}
}

func b(s string) []byte { return []byte(s) }

// told is the pairs of a range as text.
func told(t testing.TB, r interface{ at() reader }, span Range) string {
	t.Helper()
	var out []string
	for pair, err := range r.at().Items(span) {
		must(t, err)
		out = append(out, fmt.Sprintf("%s=%s", pair.Key, pair.Value))
	}
	return strings.Join(out, " ")
}

func (r reader) at() reader { return r }

func TestValuesAreThereAbsentEmptyAndLarge(t *testing.T) {
	db := open(t)
	large := bytes.Repeat(b("large "), 100_000)
	for key, value := range map[string][]byte{"apple": b("red"), "": b("no key"), "empty": {}, "nil": nil, "large": large} {
		must(t, db.Put(b(key), value))
		found := got[[]byte](t)(db.Get(b(key)))
		if found == nil || !bytes.Equal(found, value) {
			t.Fatalf("%q: %d bytes", key, len(found))
		}
		if !got[bool](t)(db.Has(b(key))) {
			t.Fatal(key)
		}
	}
	if found := got[[]byte](t)(db.Get(b("fig"))); found != nil || got[bool](t)(db.Has(b("fig"))) {
		t.Fatalf("%q", found)
	}
	all := got[[][]byte](t)(db.MultiGet([][]byte{b("apple"), b("fig"), b("empty"), b(""), b("large")}))
	if string(all[0]) != "red" || all[1] != nil || all[2] == nil || len(all[2]) != 0 || string(all[3]) != "no key" ||
		!bytes.Equal(all[4], large) {
		t.Fatal(all[:4])
	}
	if len(got[[][]byte](t)(db.MultiGet(nil))) != 0 {
		t.Fatal("no keys have values")
	}
	// What was given is the caller's own: another write does not alter it.
	first := got[[]byte](t)(db.Get(b("apple")))
	must(t, db.Put(b("apple"), b("RED")))
	must(t, db.Delete(b("apple")))
	if string(first) != "red" || got[bool](t)(db.Has(b("apple"))) {
		t.Fatal(string(first))
	}
}

func TestAValueWhoseLengthIsThatOfTheFirstBuffer(t *testing.T) {
	db := open(t)
	for n := 4090; n < 4100; n++ {
		must(t, db.Put(b("k"), bytes.Repeat([]byte{byte(n)}, n)))
		if v := got[[]byte](t)(db.Get(b("k"))); len(v) != n || v[n-1] != byte(n) {
			t.Fatal(n, len(v))
		}
	}
}

func TestRangesAreThoseOfASortedMap(t *testing.T) {
	db := open(t)
	random := rand.New(rand.NewPCG(16, 4))
	key := func() []byte {
		k := make([]byte, random.IntN(4))
		for i := range k {
			k[i] = []byte{0, 'a', 'b', 0xff}[random.IntN(4)]
		}
		return k
	}
	model := map[string]string{}
	for i := range 400 {
		k, v := key(), bytes.Repeat([]byte{byte(i)}, random.IntN(300))
		if i%50 == 0 {
			v = bytes.Repeat([]byte{byte(i)}, 80_000) // beyond a chunk
		}
		model[string(k)] = string(v)
		must(t, db.Put(k, v))
	}
	keys := []string{}
	for k := range model {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	snapshot := got[*Snapshot](t)(db.Snapshot())
	tx := got[*Tx](t)(db.Begin())
	defer tx.Rollback()
	for range 500 {
		span := Range{Reverse: random.IntN(2) == 0, NoFillCache: random.IntN(2) == 0}
		if random.IntN(3) == 0 {
			span.Prefix = key()
		} else {
			span.FromExcluded, span.ToIncluded = random.IntN(2) == 0, random.IntN(2) == 0
			if random.IntN(3) > 0 {
				span.From = key()
			}
			if random.IntN(3) > 0 {
				span.To = key()
			}
			if span.From != nil && span.To != nil && bytes.Compare(span.From, span.To) > 0 {
				span.From, span.To = span.To, span.From
			}
		}
		wanted := []string{}
		for _, k := range keys {
			if within(span, b(k)) {
				wanted = append(wanted, k)
			}
		}
		if span.Reverse {
			slices.Reverse(wanted)
		}
		for _, items := range []func(Range) func(func(Pair, error) bool){
			func(r Range) func(func(Pair, error) bool) { return db.Items(r) },
			func(r Range) func(func(Pair, error) bool) { return snapshot.Items(r) },
			func(r Range) func(func(Pair, error) bool) { return tx.Items(r) },
		} {
			found := []string{}
			for pair, err := range items(span) {
				must(t, err)
				if model[string(pair.Key)] != string(pair.Value) {
					t.Fatalf("%+v: %q", span, pair.Key)
				}
				found = append(found, string(pair.Key))
			}
			if !slices.Equal(found, wanted) {
				t.Fatalf("%+v: %q instead of %q", span, found, wanted)
			}
		}
	}
}

func within(r Range, k []byte) bool {
	if r.Prefix != nil {
		return bytes.HasPrefix(k, r.Prefix)
	}
	if r.From != nil {
		if c := bytes.Compare(k, r.From); c < 0 || c == 0 && r.FromExcluded {
			return false
		}
	}
	if r.To != nil {
		if c := bytes.Compare(k, r.To); c > 0 || c == 0 && !r.ToIncluded {
			return false
		}
	}
	return true
}

func TestPairsAreTheLoopsToKeepAndALoopMayEnd(t *testing.T) {
	db := open(t)
	for i := range 3000 {
		must(t, db.Put(fmt.Appendf(nil, "%04d", i), fmt.Appendf(nil, "value %d", i)))
	}
	var kept []Pair
	for pair, err := range db.Items(Range{}) {
		must(t, err)
		kept = append(kept, pair)
		_ = append(pair.Key, "overwrites nothing"...)
	}
	for i, pair := range kept {
		if string(pair.Key) != fmt.Sprintf("%04d", i) || string(pair.Value) != fmt.Sprintf("value %d", i) {
			t.Fatalf("%d: %q", i, pair)
		}
	}
	n := 0
	for range db.Items(Range{}) {
		if n++; n == 1234 {
			break
		}
	}
	if len(kept) != 3000 || n != 1234 {
		t.Fatal(len(kept), n)
	}
	for _, err := range db.Items(Range{From: b("a"), Prefix: b("a")}) {
		is(t, err, InvalidArgument, FixCall)
	}
}

func TestBatchesKeyspacesAndRanges(t *testing.T) {
	db := open(t)
	users := got[*Keyspace](t)(db.Keyspace("users", "compression = 'lz4'"))
	batch := NewBatch()
	batch.Put(b("pear"), b("12"))
	batch.In(users).Put(b("u1"), b("Ada"))
	batch.In(users).Put(b("u2"), b("Bob"))
	batch.In(users).DeleteRange(Range{From: b("u2")})
	batch.Delete(b("apple"))
	if batch.Len() != 5 {
		t.Fatal(batch.Len())
	}
	must(t, db.Write(batch, Sync))
	if s := told(t, db, Range{}) + ", " + told(t, users, Range{}); s != "pear=12, u1=Ada" {
		t.Fatal(s)
	}
	batch.Clear()
	must(t, db.Write(batch))
	batch.PutTTL(b("k"), b("v"), 0)
	batch.Put(b("later"), b("v"))
	is(t, db.Write(batch), InvalidArgument)
	batch.Clear()
	batch.In(users).DeleteRange(Range{Reverse: true})
	is(t, db.Write(batch), InvalidArgument)
	is(t, db.Write(nil), InvalidArgument)
	is(t, db.Put(b("k"), nil, Sync, Sync), InvalidArgument)
	is(t, db.Put(b("k"), nil, Durability(77)), InvalidArgument)

	if name := got[string](t)(users.Name()); name != "users" {
		t.Fatal(name)
	}
	if s := got[[]byte](t)(users.Settings()); !bytes.Contains(s, b("lz4")) {
		t.Fatalf("%s", s)
	}
	must(t, users.Alter("compression = 'none'"))
	if s := got[[]byte](t)(users.Settings()); bytes.Contains(s, b("\"compression\": \"lz4\"")) {
		t.Fatalf("%s", s)
	}
	if names := got[[]string](t)(db.Keyspaces()); !slices.Equal(names, []string{"users"}) {
		t.Fatal(names)
	}
	if k := got[*Keyspace](t)(db.ExistingKeyspace("none")); k != nil {
		t.Fatal("there is none")
	}
	if got[*Keyspace](t)(db.ExistingKeyspace("users")) == nil {
		t.Fatal("there is one")
	}
	must(t, users.Put(b("x1"), nil))
	must(t, users.DeleteRange(Range{Prefix: b("u")}))
	if s := told(t, users, Range{}); s != "x1=" {
		t.Fatal(s)
	}
	if !got[bool](t)(db.DropKeyspace("users")) || got[bool](t)(db.DropKeyspace("users")) {
		t.Fatal("dropped once")
	}
	is(t, users.Put(b("k"), nil), KeyspaceDropped)
}

func TestSnapshotsStayAsTheyWereUntilTheyAreClosed(t *testing.T) {
	db := open(t)
	other := got[*Keyspace](t)(db.Keyspace("other"))
	must(t, db.Put(b("k"), b("old")))
	must(t, other.Put(b("k"), b("other's")))
	s := got[*Snapshot](t)(db.Snapshot())
	must(t, db.Put(b("k"), b("new")))
	must(t, other.Delete(b("k")))
	if v := got[[]byte](t)(s.Get(b("k"))); string(v) != "old" {
		t.Fatal(string(v))
	}
	then := got[*Snapshot](t)(s.Keyspace("other"))
	if v := got[[]byte](t)(then.Get(b("k"))); string(v) != "other's" {
		t.Fatal(string(v))
	}
	if none := got[*Snapshot](t)(s.Keyspace("none")); none != nil {
		t.Fatal("there is none")
	}
	// Readers are in calls while it is closed: each has an answer, or hears that it has ended.
	var readers sync.WaitGroup
	for range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				v, err := s.Get(b("k"))
				if errors.Is(err, Closed) {
					return
				}
				if err != nil || string(v) != "old" {
					t.Error(string(v), err)
					return
				}
			}
		}()
	}
	time.Sleep(5 * time.Millisecond)
	s.Close()
	s.Close()
	readers.Wait()
	then.Close()
	for _, err := range s.Items(Range{}) {
		is(t, err, Closed, fs.ErrClosed)
	}
}

func TestTimeToLive(t *testing.T) {
	db := open(t, TimeToLive(time.Hour))
	if s := got[[]byte](t)(db.Settings()); !bytes.Contains(s, b("3600000")) && !bytes.Contains(s, b("1 h")) {
		t.Fatalf("%s", s)
	}
	short := got[*Keyspace](t)(db.Keyspace("short", "time_to_live = '20 ms'"))
	must(t, short.Put(b("k"), nil))
	must(t, db.PutTTL(b("code"), b("815"), time.Nanosecond))
	must(t, db.PutTTL(b("token"), b("7f3a"), time.Hour))
	batch := NewBatch()
	batch.PutTTL(b("batched"), nil, 20*time.Millisecond)
	must(t, db.Write(batch))
	time.Sleep(50 * time.Millisecond)
	if s := told(t, db, Range{}) + told(t, short, Range{}); s != "token=7f3a" {
		t.Fatal(s)
	}
	is(t, db.PutTTL(b("k"), nil, 0), InvalidArgument)
}

func TestErrorsHaveCodesKindsAndMeanings(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "none"), MustExist())
	is(t, err, NoStore, FixCall, fs.ErrNotExist)
	var e *Error
	if !errors.As(err, &e) || e.Code != NoStore || e.Kind != FixCall || errors.Is(err, Conflict) || errors.Is(err, Retry) {
		t.Fatalf("%#v", err)
	}
	db := got[*DB](t)(Open(dir))
	_, err = Open(dir)
	is(t, err, Locked, Retry)
	_, err = Open(dir, Settings("cache_byte = 1"))
	is(t, err, InvalidArgument)
	_, err = Open(dir, Engine("io_ring"))
	is(t, err, InvalidArgument)
	_, err = Open(dir, SettingsFile(filepath.Join(dir, "none.toml")))
	is(t, err, FixCall)
	_, err = Open(dir, EncryptionKeys(nil))
	is(t, err, InvalidArgument)
	reader := got[*DB](t)(Open(dir, ForReading()))
	is(t, reader.Put(b("k"), nil), ReadOnly)
	must(t, reader.Close())
	_, err = db.Keyspace("k", "filter_bits_per_key = 'ten'")
	is(t, err, InvalidArgument)
	if !strings.Contains(err.Error(), "filter_bits_per_key") {
		t.Fatal(err)
	}
	must(t, db.Close())
	_, err = db.Get(b("k"))
	is(t, err, Closed, fs.ErrClosed)
	is(t, db.Close(), Closed)
	for _, err := range db.Items(Range{}) {
		is(t, err, Closed)
	}
	if Conflict.Kind() != Retry || Conflict.Error() != "ringdb: conflict" || Kind(99).Error() != "ringdb: unknown" {
		t.Fatal(Conflict.Kind(), Conflict)
	}
	var none DB
	_, err = none.Get(b("k"))
	is(t, err, InvalidArgument)
}

func TestUpkeepStatsAndMetrics(t *testing.T) {
	db := open(t, Writes(None), Engine("posix"))
	for i := range 2000 {
		must(t, db.Put(fmt.Appendf(nil, "%05d", i), bytes.Repeat(b("v"), 100)))
	}
	must(t, db.Flush())
	must(t, db.Compact(Range{}))
	must(t, db.WaitIdle())
	must(t, db.Sync())
	must(t, db.Rewrite())
	copyOf := filepath.Join(t.TempDir(), "copy")
	must(t, db.Checkpoint(copyOf))
	second := got[*DB](t)(Open(copyOf))
	if v := got[[]byte](t)(second.Get(b("01999"))); len(v) != 100 {
		t.Fatal(len(v))
	}
	must(t, second.Close())
	var stats map[string]any
	must(t, json.Unmarshal(got[[]byte](t)(db.Stats()), &stats))
	if stats["engine"] == nil && len(stats) < 5 {
		t.Fatal(stats)
	}
	if m := got[[]byte](t)(db.Metrics()); !bytes.Contains(m, b("# TYPE ringdb_")) || bytes.Contains(m, b("# EOF")) {
		t.Fatalf("%s", m)
	}
	if m := got[[]byte](t)(db.OpenMetrics()); !bytes.HasSuffix(m, b("# EOF\n")) {
		t.Fatalf("%s", m)
	}
	well, report, err := db.Verify()
	if must(t, err); !well || !json.Valid(report) {
		t.Fatalf("%s", report)
	}

	// Out as tables, and in again; and sorted pairs as tables.
	tables := filepath.Join(t.TempDir(), "tables")
	if report := got[[]byte](t)(db.ExportRange(Range{From: b("00010"), To: b("00020")}, tables)); !json.Valid(report) {
		t.Fatalf("%s", report)
	}
	if n := got[uint64](t)(got[*Keyspace](t)(db.Keyspace("copy")).ImportTables(tables)); n != 10 {
		t.Fatal(n)
	}
	squares := got[*Keyspace](t)(db.Keyspace("squares"))
	pairs := func(yield func(Pair, error) bool) {
		for i := range 1000 {
			if !yield(Pair{fmt.Appendf(nil, "%04d", i), fmt.Appendf(nil, "%d", i*i)}, nil) {
				return
			}
		}
	}
	if n := got[uint64](t)(squares.Ingest(pairs)); n != 1000 {
		t.Fatal(n)
	}
	if v := got[[]byte](t)(squares.Get(b("0042"))); string(v) != "1764" {
		t.Fatal(string(v))
	}
	_, err = squares.Ingest(func(yield func(Pair, error) bool) { yield(Pair{}, os.ErrInvalid) })
	is(t, err, os.ErrInvalid)
	_, err = squares.Ingest(func(yield func(Pair, error) bool) {
		_ = yield(Pair{Key: b("b")}, nil) && yield(Pair{Key: b("a")}, nil)
	})
	is(t, err, InvalidArgument)
}

func TestDamageIsToldBehindThePairsBeforeIt(t *testing.T) {
	dir := t.TempDir()
	db := got[*DB](t)(Open(dir))
	for i := range 5000 {
		must(t, db.Put(fmt.Appendf(nil, "%05d", i), bytes.Repeat([]byte{byte(i)}, 100)))
	}
	must(t, db.Flush())
	must(t, db.Close())
	damage(t, dir)
	db = got[*DB](t)(Open(dir))
	n := 0
	var failed error
	for pair, err := range db.Items(Range{}) {
		if err != nil {
			failed = err
			continue
		}
		if failed != nil || string(pair.Key) != fmt.Sprintf("%05d", n) {
			t.Fatal(n, failed)
		}
		n++
	}
	is(t, failed, Corrupt, Repair)
	if n < 100 {
		t.Fatal(n, "pairs before the damage")
	}
	well, _, err := db.Verify()
	if must(t, err); well {
		t.Fatal("verify sees no damage")
	}
	must(t, db.Close())
	mended := filepath.Join(t.TempDir(), "mended")
	if report := got[[]byte](t)(Salvage(dir, mended)); !json.Valid(report) {
		t.Fatalf("%s", report)
	}
}

// damage changes a byte in the middle of the largest table.
func damage(t *testing.T, dir string) {
	t.Helper()
	var largest string
	var size int64
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".sst") {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > size {
			largest, size = path, info.Size()
		}
		return err
	}))
	file := got[*os.File](t)(os.OpenFile(largest, os.O_RDWR, 0))
	defer file.Close()
	was := make([]byte, 1)
	_, err := file.ReadAt(was, size/2)
	must(t, err)
	_, err = file.WriteAt([]byte{^was[0]}, size/2)
	must(t, err)
}

func TestEncryption(t *testing.T) {
	dir := t.TempDir()
	keys := map[uint32][32]byte{1: {1}, 2: {2}}
	db := got[*DB](t)(Open(dir, EncryptionKeys(keys)))
	must(t, db.Put(b("k"), b("a secret that is nowhere in a file")))
	must(t, db.Close())
	_, err := Open(dir)
	is(t, err, EncryptionKey)
	db = got[*DB](t)(Open(dir, EncryptionKeys(keys)))
	if v := got[[]byte](t)(db.Get(b("k"))); !bytes.HasPrefix(v, b("a secret")) {
		t.Fatal(string(v))
	}
	must(t, db.Close())
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if content, err := os.ReadFile(path); err != nil || bytes.Contains(content, b("a secret")) {
			return errors.Join(err, errors.New(path))
		}
		return nil
	}))
}

func TestHandlesThatAreDroppedAreReleased(t *testing.T) {
	dir := t.TempDir()
	func() {
		db := got[*DB](t)(Open(dir))
		must(t, db.Put(b("k"), b("v")))
		_ = got[*Snapshot](t)(db.Snapshot())
		_ = got[*Keyspace](t)(db.Keyspace("dropped"))
		_ = got[*Tx](t)(db.Begin())
		NewBatch().Put(b("k"), b("v"))
	}()
	// The directory's lock is free when the last handle is.
	for range 200 {
		runtime.GC()
		db, err := Open(dir)
		if err == nil {
			if v := got[[]byte](t)(db.Get(b("k"))); string(v) != "v" {
				t.Fatal(string(v))
			}
			must(t, db.Close())
			return
		}
		is(t, err, Locked)
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the store is still open")
}
