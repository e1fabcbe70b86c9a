// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

type operator func(key, value []byte, operands [][]byte) ([]byte, error)

func (f operator) Merge(key, value []byte, operands [][]byte) ([]byte, error) {
	return f(key, value, operands)
}

// longest keeps the longest operand; it is associative.
type longest struct{ partial *atomic.Int64 }

func (l longest) Merge(_, value []byte, operands [][]byte) ([]byte, error) {
	for _, o := range operands {
		if len(o) >= len(value) {
			value = o
		}
	}
	return value, nil
}

func (l longest) PartialMerge(key []byte, operands [][]byte) ([]byte, error) {
	l.partial.Add(1)
	return l.Merge(key, nil, operands)
}

func TestMergeOperatorsOfTheLibraryAndOfGo(t *testing.T) {
	partial := new(atomic.Int64)
	joined := operator(func(key, value []byte, operands [][]byte) ([]byte, error) {
		parts := append([][]byte{key, value}, operands...)
		return bytes.Join(parts, b("|")), nil
	})
	db := open(t, WithMergeOperator("joined", joined), WithMergeOperator("longest", longest{partial}))
	hits := got[*Keyspace](t)(db.Keyspace("hits", "merge_operator = 'add'"))
	one := binary.LittleEndian.AppendUint64(nil, 1)
	for range 42 {
		must(t, hits.Merge(b("index"), one))
	}
	if v := got[[]byte](t)(hits.Get(b("index"))); binary.LittleEndian.Uint64(v) != 42 {
		t.Fatal(v)
	}
	is(t, hits.Merge(b("index"), b("x")), InvalidArgument)
	is(t, db.Merge(b("k"), b("x")), InvalidArgument)

	join := got[*Keyspace](t)(db.Keyspace("join", "merge_operator = 'joined'"))
	must(t, join.Put(b("k"), nil))
	must(t, join.Merge(b("k"), nil))
	must(t, join.Merge(b("k"), b("x")))
	must(t, join.Merge(b(""), b("y")))
	if v := got[[]byte](t)(join.Get(b("k"))); string(v) != "k|||x" {
		t.Fatal(string(v))
	}
	if s := told(t, join, Range{}); s != "=||y k=k|||x" {
		t.Fatal(s)
	}
	batch := NewBatch()
	batch.In(join).Merge(b("k"), b("z"))
	must(t, db.Write(batch))
	must(t, db.Flush())
	if v := got[[]byte](t)(join.Get(b("k"))); string(v) != "k|||x|z" && string(v) != "k|k|||x|z" {
		t.Fatal(string(v))
	}

	long := got[*Keyspace](t)(db.Keyspace("long", "merge_operator = 'longest'"))
	for i := range 200 {
		must(t, long.Merge(b("k"), bytes.Repeat(b("o"), i%77)))
	}
	must(t, db.Flush())
	if v := got[[]byte](t)(long.Get(b("k"))); len(v) != 76 || partial.Load() == 0 {
		t.Fatal(len(v), partial.Load())
	}
}

func TestOperatorsThatFailAndPanic(t *testing.T) {
	var mood atomic.Value
	mood.Store("fail")
	moody := operator(func(_, _ []byte, operands [][]byte) ([]byte, error) {
		switch mood.Load() {
		case "fail":
			return nil, errors.New("not today")
		case "panic":
			panic("not at all")
		}
		return operands[0], nil
	})
	db := open(t, WithMergeOperator("moody", moody))
	k := got[*Keyspace](t)(db.Keyspace("k", "merge_operator = 'moody'"))
	must(t, k.Merge(b("k"), b("v")))
	for _, m := range []string{"fail", "panic"} {
		mood.Store(m)
		_, err := k.Get(b("k"))
		is(t, err, InvalidArgument)
		if !strings.Contains(err.Error(), "not ") {
			t.Fatal(err)
		}
	}
	mood.Store("well")
	if v := got[[]byte](t)(k.Get(b("k"))); string(v) != "v" {
		t.Fatal(string(v))
	}
	_, err := Open(t.TempDir(), WithMergeOperator("", moody))
	is(t, err, InvalidArgument)
	_, err = Open(t.TempDir(), WithMergeOperator("nil", nil))
	is(t, err, InvalidArgument)
	_, err = Open(t.TempDir(), WithCompactionFilter("nil", nil))
	is(t, err, InvalidArgument)
}

func TestCompactionFilters(t *testing.T) {
	forms := func(_ int, last bool, key, value []byte) (Verdict, []byte, error) {
		switch {
		case bytes.HasPrefix(value, b("1")):
			return Remove, nil, nil
		case bytes.HasPrefix(value, b("2")):
			return Change, append(b("3"), value[1:]...), nil
		case bytes.HasPrefix(value, b("panic")):
			panic(string(key))
		}
		return Keep, nil, nil
	}
	db := open(t, WithCompactionFilter("forms", forms))
	papers := got[*Keyspace](t)(db.Keyspace("papers", "compaction_filter = 'forms'"))
	for key, value := range map[string]string{"a": "1 old", "b": "2 new", "c": "4", "": ""} {
		must(t, papers.Put(b(key), b(value)))
	}
	must(t, papers.Compact(Range{}))
	if s := told(t, papers, Range{}); s != "= b=3 new c=4" {
		t.Fatal(s)
	}
	must(t, papers.Put(b("d"), b("panic")))
	_ = papers.Compact(Range{})
	var stats struct {
		Removed int    `json:"compaction_filter_removed"`
		Trouble string `json:"background_error"`
	}
	must(t, json.Unmarshal(got[[]byte](t)(db.Stats()), &stats))
	if stats.Removed != 1 || !strings.Contains(stats.Trouble, "panic: d") {
		t.Fatal(stats)
	}
}

func TestWhatWasRegisteredIsGivenBack(t *testing.T) {
	type large struct {
		operator
		memory [1 << 16]byte
	}
	var freed atomic.Bool
	func() {
		op := &large{operator: func(_, _ []byte, operands [][]byte) ([]byte, error) { return operands[0], nil }}
		runtime.AddCleanup(op, func(int) { freed.Store(true) }, 0)
		db := got[*DB](t)(Open(t.TempDir(), WithMergeOperator("large", op)))
		k := got[*Keyspace](t)(db.Keyspace("k", "merge_operator = 'large'"))
		must(t, k.Merge(b("k"), b("v")))
		must(t, db.Close())
	}()
	for range 200 {
		if runtime.GC(); freed.Load() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the operator lives for ever")
}
