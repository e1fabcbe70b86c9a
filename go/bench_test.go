// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

import (
	"context"
	"fmt"
	"testing"
)

const benchKeys = 20_000

func filled(b *testing.B) (*DB, [][]byte) {
	db := open(b)
	batch := NewBatch()
	keys := make([][]byte, benchKeys)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key%09d", i)
		batch.Put(keys[i], make([]byte, 100))
	}
	must(b, db.Write(batch))
	must(b, db.Flush())
	for range db.Items(Range{}) {
	}
	return db, keys
}

func BenchmarkGet(b *testing.B) {
	db, keys := filled(b)
	for i := 0; b.Loop(); i++ {
		if v, err := db.Get(keys[i*7919%benchKeys]); err != nil || len(v) != 100 {
			b.Fatal(v, err)
		}
	}
}

func BenchmarkGetContext(b *testing.B) {
	db, keys := filled(b)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	for i := 0; b.Loop(); i++ {
		if v, err := db.GetContext(ctx, keys[i*7919%benchKeys]); err != nil || len(v) != 100 {
			b.Fatal(v, err)
		}
	}
}

// A key of 64.
func BenchmarkMultiGet(b *testing.B) {
	db, keys := filled(b)
	group := make([][]byte, 64)
	for i := 0; b.Loop(); i++ {
		if i%64 == 0 {
			for j := range group {
				group[j] = keys[(i+j)*7919%benchKeys]
			}
			if _, err := db.MultiGet(group); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkPut(b *testing.B) {
	db, keys := filled(b)
	for i := 0; b.Loop(); i++ {
		if err := db.Put(keys[i*7919%benchKeys], keys[0]); err != nil {
			b.Fatal(err)
		}
	}
}

// A pair of a long scan.
func BenchmarkItems(b *testing.B) {
	db, _ := filled(b)
	n := 0
	for b.Loop() {
		if n == 0 {
			n = benchKeys
			for _, err := range db.Items(Range{}) {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		n--
	}
}

// What a call into C costs by itself.
func BenchmarkNothing(b *testing.B) {
	for b.Loop() {
		_ = Conflict.Kind()
	}
}
