// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

// #include "bridge.h"
import "C"

import (
	"bytes"
	"context"
	"iter"
)

// A Pair is a key and its value. Both are the caller's to keep; several pairs may share memory.
type Pair struct{ Key, Value []byte }

// A Range of keys: from From on and before To, where nil is no bound. The zero Range is everything.
type Range struct {
	From, To     []byte
	FromExcluded bool   // the pairs after From instead of from it on
	ToIncluded   bool   // the pairs up to and with To instead of before it
	Prefix       []byte // the keys that begin with it, instead of bounds
	Reverse      bool   // from the last pair to the first
	NoFillCache  bool   // blocks that are read do not stay in the cache: for scans that would sweep it
}

// bounds are a range for C. The bytes are used as long as the call.
type bounds struct {
	from, to []byte
	c        C.ringdb_go_range
}

func (r Range) bounds() (b bounds, err error) {
	b.from, b.to = r.From, r.To
	if r.Prefix != nil {
		if r.From != nil || r.To != nil || r.FromExcluded || r.ToIncluded {
			return b, invalid("a range has bounds or a prefix, not both")
		}
		b.from, b.to = r.Prefix, after(r.Prefix)
	}
	if r.FromExcluded {
		b.c.flags |= C.RINGDB_FROM_EXCLUDED
	}
	if r.ToIncluded {
		b.c.flags |= C.RINGDB_TO_INCLUDED
	}
	if b.from != nil {
		b.c.there |= C.RINGDB_GO_FROM
	}
	if b.to != nil {
		b.c.there |= C.RINGDB_GO_TO
	}
	if r.NoFillCache {
		b.c.no_fill_cache = 1
	}
	b.c.from_len, b.c.to_len = C.size_t(len(b.from)), C.size_t(len(b.to))
	return b, nil
}

// forward are the bounds of a range that is not gone through in an order.
func (r Range) forward() (bounds, error) {
	if r.Reverse || r.NoFillCache {
		return bounds{}, invalid("Reverse and NoFillCache are for iterators")
	}
	return r.bounds()
}

// after is the first key behind all that begin with prefix, or nil if there is none.
func after(prefix []byte) []byte {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] != 0xff {
			next := bytes.Clone(prefix[:n])
			next[n-1]++
			return next
		}
	}
	return nil
}

// Items goes through the pairs of a range, as of when the loop begins. A failure is told once, as the last step:
//
//	for pair, err := range db.Items(ringdb.Range{Prefix: []byte("a")}) {
//		if err != nil {
//			return err
//		}
//		...
//	}
func (r reader) Items(span Range) iter.Seq2[Pair, error] {
	return r.ItemsContext(context.Background(), span)
}

// ItemsContext is the same, until the context ends: it is asked before each step.
func (r reader) ItemsContext(ctx context.Context, span Range) iter.Seq2[Pair, error] {
	return items(ctx, span, func(b *bounds, back C.int32_t, out **C.ringdb_go_iter) error {
		return r.p.do(func(db *C.ringdb_db, err *C.ringdb_error) C.int32_t {
			return C.ringdb_go_iter_open(db, nil, pointer(b.from), pointer(b.to), &b.c, back, out, err)
		})
	}, call)
}

// The bytes and pairs that are copied by one call into C: few at first, for loops that end early.
const (
	firstPairs, mostPairs = 8, 512
	firstBytes, mostBytes = 1 << 10, 64 << 10
)

// items goes through what open opens; fill runs each call that takes pairs from it.
func items(ctx context.Context, span Range, open func(*bounds, C.int32_t, **C.ringdb_go_iter) error,
	fill func(func(*C.ringdb_error) C.int32_t) error) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		b, err := span.bounds()
		if err != nil {
			yield(Pair{}, err)
			return
		}
		var back C.int32_t
		if span.Reverse {
			back = 1
		}
		var it *C.ringdb_go_iter
		if err := open(&b, back, &it); err != nil {
			yield(Pair{}, err)
			return
		}
		defer C.ringdb_go_iter_free(it)
		c := chunk{pairs: firstPairs, bytes: firstBytes, lens: make([]C.size_t, 2*mostPairs)}
		for {
			if err := ctx.Err(); err != nil {
				yield(Pair{}, err)
				return
			}
			n, err := c.take(it, fill)
			if err != nil {
				yield(Pair{}, err)
				return
			}
			if n == 0 || !c.give(ctx, n, yield) {
				return
			}
		}
	}
}

// A chunk is pairs that one call has copied. Its memory is the loop's to keep, and made anew for each.
type chunk struct {
	pairs, bytes int
	data         []byte
	lens         []C.size_t
}

// take copies the next pairs, and says how many: 0 at the end.
func (c *chunk) take(it *C.ringdb_go_iter, fill func(func(*C.ringdb_error) C.int32_t) error) (int, error) {
	var code C.int32_t
	for need := C.size_t(c.bytes); ; {
		c.data = make([]byte, int(need))
		small := false
		err := fill(func(err *C.ringdb_error) C.int32_t {
			code = C.ringdb_go_iter_fill(it, pointer(c.data), C.size_t(len(c.data)), &c.lens[0], C.int32_t(c.pairs), &need, err)
			if code == C.RINGDB_BUFFER_TOO_SMALL {
				small, code = true, 0
			}
			return code
		})
		if err != nil || !small {
			if err != nil {
				return 0, err
			}
			c.grow(int(code))
			return int(code), nil
		}
	}
}

// grow makes the next chunk twice as large as what this one holds in n pairs.
func (c *chunk) grow(n int) {
	held := 0
	for _, l := range c.lens[:2*n] {
		held += int(l)
	}
	c.pairs, c.bytes = min(2*c.pairs, mostPairs), max(firstBytes, min(2*held, mostBytes))
}

// give passes n pairs on; false: the loop has ended.
func (c *chunk) give(ctx context.Context, n int, yield func(Pair, error) bool) bool {
	rest := c.data
	cut := func(n C.size_t) []byte {
		b := rest[:n:n]
		rest = rest[n:]
		return b
	}
	for i := range n {
		if err := ctx.Err(); i > 0 && err != nil {
			yield(Pair{}, err)
			return false
		}
		if !yield(Pair{cut(c.lens[2*i]), cut(c.lens[2*i+1])}, nil) {
			return false
		}
	}
	return true
}
