// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestContextsOfCallsThatAreAnswered(t *testing.T) {
	db := open(t, Settings("direct_reads = true"))
	ctx, end := context.WithTimeout(context.Background(), time.Minute)
	defer end()
	var writers sync.WaitGroup
	for i := range 64 {
		writers.Add(1)
		go func() {
			defer writers.Done()
			batch := NewBatch()
			for j := range 100 {
				batch.Put(fmt.Appendf(nil, "%02d %02d", i, j), bytes.Repeat([]byte{byte(i)}, 200))
			}
			if err := db.WriteContext(ctx, batch, Sync); err != nil {
				t.Error(err)
			}
		}()
	}
	writers.Wait()
	must(t, db.SyncContext(ctx))
	must(t, db.Flush())
	var readers sync.WaitGroup
	for i := range 64 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for j := range 20 {
				v, err := db.GetContext(ctx, fmt.Appendf(nil, "%02d %02d", i, j))
				if err != nil || len(v) != 200 || v[0] != byte(i) {
					t.Error(v, err)
				}
			}
			all, err := db.MultiGetContext(ctx, [][]byte{fmt.Appendf(nil, "%02d 50", i), b("absent"), fmt.Appendf(nil, "%02d 51", i)})
			if err != nil || len(all[0]) != 200 || all[1] != nil || all[2][199] != byte(i) {
				t.Error(all, err)
			}
		}()
	}
	readers.Wait()
	if v := got[[]byte](t)(db.GetContext(ctx, b("absent"))); v != nil {
		t.Fatal(v)
	}
	if v := got[[]byte](t)(db.GetContext(context.Background(), b("00 00"))); len(v) != 200 {
		t.Fatal(v)
	}
	must(t, db.Close())
	_, err := db.GetContext(ctx, b("absent"))
	is(t, err, Closed)
	_, err = db.MultiGetContext(ctx, [][]byte{b("absent")})
	is(t, err, Closed)
	is(t, db.SyncContext(ctx), Closed)
}

func TestContextsThatHaveEnded(t *testing.T) {
	db := open(t)
	must(t, db.Put(b("k"), b("v")))
	ctx, end := context.WithCancel(context.Background())
	end()
	_, err := db.GetContext(ctx, b("k"))
	is(t, err, context.Canceled)
	_, err = db.MultiGetContext(ctx, [][]byte{b("k")})
	is(t, err, context.Canceled)
	is(t, db.WriteContext(ctx, NewBatch()), context.Canceled)
	is(t, db.SyncContext(ctx), context.Canceled)
	for _, err := range db.ItemsContext(ctx, Range{}) {
		is(t, err, context.Canceled)
	}
}

func TestAContextThatEndsWithinALoop(t *testing.T) {
	db := open(t)
	for i := range 100 {
		must(t, db.Put([]byte{byte(i)}, nil))
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	n := 0
	var failed error
	for _, err := range db.ItemsContext(ctx, Range{}) {
		if err != nil {
			failed = err
			continue
		}
		if n++; n == 5 {
			end()
		}
	}
	is(t, failed, context.Canceled)
	if n != 5 {
		t.Fatal(n)
	}
}

// A merge operator that waits holds up the thread that reads: what is asked behind it has no answer until its context ends.
func TestARequestThatIsNotAnsweredEndsWithItsContext(t *testing.T) {
	called, gate := make(chan struct{}, 9), make(chan struct{})
	slow := operator(func(_, _ []byte, operands [][]byte) ([]byte, error) {
		called <- struct{}{}
		<-gate
		return operands[0], nil
	})
	dir := t.TempDir()
	settings := Settings("direct_reads = true")
	db := got[*DB](t)(Open(dir, settings, WithMergeOperator("slow", slow)))
	k := got[*Keyspace](t)(db.Keyspace("k", "merge_operator = 'slow'"))
	must(t, k.Merge(b("a"), b("v")))
	for i := range 100 { // so that they are in different blocks
		must(t, k.Put(fmt.Appendf(nil, "a%d", i), bytes.Repeat(b("v"), 1000)))
	}
	must(t, k.Put(b("b"), bytes.Repeat(b("v"), 10_000)))
	must(t, db.Flush())
	must(t, db.Close())

	// Opened anew, with nothing in memory.
	db = got[*DB](t)(Open(dir, settings, WithMergeOperator("slow", slow)))
	k = got[*Keyspace](t)(db.Keyspace("k"))
	answered := make(chan error, 1)
	background, end := context.WithCancel(context.Background())
	defer end()
	go func() {
		_, err := k.GetContext(background, b("a"))
		answered <- err
	}()
	<-called
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	_, err := k.GetContext(ctx, b("b"))
	is(t, err, context.DeadlineExceeded)
	close(gate)
	must(t, <-answered)
	if v := got[[]byte](t)(k.GetContext(background, b("b"))); len(v) != 10_000 {
		t.Fatal(len(v))
	}
	must(t, db.Close())
}

func TestRequestsAreCancelledAtAnyMoment(t *testing.T) {
	db := open(t, Settings("direct_reads = true\ncache_bytes = '8 MiB'"))
	batch := NewBatch()
	for i := range 20_000 {
		batch.Put(fmt.Appendf(nil, "%05d", i), bytes.Repeat([]byte{byte(i)}, 1000))
	}
	must(t, db.Write(batch))
	must(t, db.Flush())
	var all sync.WaitGroup
	cancelled := make([]int, 8)
	for g := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range 300 {
				n := (i*2477 + g*911) % 20_000
				ctx, end := context.WithCancel(context.Background())
				go func() {
					time.Sleep(time.Duration(i%40) * 5 * time.Microsecond)
					end()
				}()
				v, err := db.GetContext(ctx, fmt.Appendf(nil, "%05d", n))
				switch {
				case err == nil && (len(v) != 1000 || v[0] != byte(n)):
					t.Errorf("%d: %v", n, len(v))
				case err != nil && err != context.Canceled:
					t.Error(err)
				case err != nil:
					cancelled[g]++
				}
				if i%3 == 0 {
					write := NewBatch()
					write.Put(fmt.Appendf(nil, "%05d", n), bytes.Repeat([]byte{byte(n)}, 1000))
					if err := db.WriteContext(ctx, write, Sync); err != nil && err != context.Canceled {
						t.Error(err)
					}
				}
				end()
			}
		}()
	}
	all.Wait()
	t.Log("cancelled", cancelled)
}
