// SPDX-License-Identifier: MIT OR Apache-2.0

package ringdb

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"
)

func TestTransactionsConflictAndUpdatesDoNotLoseAny(t *testing.T) {
	db := open(t)
	const goroutines, rounds = 4, 50
	var all sync.WaitGroup
	for range goroutines {
		all.Add(1)
		go func() {
			defer all.Done()
			for range rounds {
				err := db.Update(context.Background(), func(tx *Tx) error {
					old, err := tx.Get(b("n"))
					if err != nil {
						return err
					}
					n, _ := strconv.Atoi(string(old))
					return tx.Put(b("n"), b(strconv.Itoa(n+1)))
				})
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	if v := got[[]byte](t)(db.Get(b("n"))); string(v) != strconv.Itoa(goroutines*rounds) {
		t.Fatal(string(v))
	}

	tx := got[*Tx](t)(db.Begin())
	if v := got[[]byte](t)(tx.Get(b("absent"))); v != nil {
		t.Fatal(v)
	}
	must(t, db.Put(b("absent"), nil))
	must(t, tx.Put(b("k"), nil))
	is(t, tx.Commit(), Conflict, Retry)
	is(t, tx.Put(b("k"), nil), Closed)
	is(t, tx.Commit(), Closed)
	tx.Rollback()
	if got[bool](t)(db.Has(b("k"))) {
		t.Fatal("a transaction that conflicts has written")
	}
}

func TestAnUpdateThatFailsOrPanicsHasWrittenNothing(t *testing.T) {
	db := open(t)
	reason := errors.New("no money")
	err := db.Update(context.Background(), func(tx *Tx) error {
		must(t, tx.Put(b("k"), nil))
		return reason
	})
	is(t, err, reason)
	func() {
		defer func() {
			if recover() != "enough" {
				t.Error("no panic")
			}
		}()
		_ = db.Update(context.Background(), func(tx *Tx) error {
			must(t, tx.Put(b("k"), nil))
			panic("enough")
		})
	}()
	ended, end := context.WithCancel(context.Background())
	end()
	is(t, db.Update(ended, func(*Tx) error { panic("not called") }), context.Canceled)
	// One that always conflicts ends with its context.
	short, end := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer end()
	err = db.Update(short, func(tx *Tx) error {
		_ = got[[]byte](t)(tx.Get(b("busy")))
		must(t, db.Put(b("busy"), nil))
		return tx.Put(b("k"), nil)
	})
	is(t, err, context.DeadlineExceeded)
	if got[bool](t)(db.Has(b("k"))) {
		t.Fatal("written")
	}
}

func TestATransactionSeesItsOwnWritesInAnyKeyspace(t *testing.T) {
	db := open(t)
	sums := got[*Keyspace](t)(db.Keyspace("sums", "merge_operator = 'append:,'"))
	must(t, db.Put(b("a"), b("1")))
	tx := got[*Tx](t)(db.Begin())
	must(t, tx.Put(b("b"), b("2")))
	must(t, tx.Delete(b("a")))
	must(t, tx.In(sums).Merge(b("k"), b("x")))
	must(t, tx.In(sums).Merge(b("k"), b("y")))
	seen := ""
	for pair, err := range tx.Items(Range{}) {
		must(t, err)
		seen += string(pair.Key)
	}
	if v := got[[]byte](t)(tx.In(sums).Get(b("k"))); seen != "b" || string(v) != "x,y" {
		t.Fatal(seen, string(v))
	}
	is(t, tx.Commit(Durability(9)), InvalidArgument)
	is(t, tx.Commit(), Closed)
	if got[bool](t)(db.Has(b("b"))) {
		t.Fatal("written without a commit")
	}
}

func TestATransactionThatEndsWithinItsLoopEndsTheLoop(t *testing.T) {
	endsTheLoop(t, (*Tx).Rollback)
	endsTheLoop(t, func(tx *Tx) { _ = tx.Commit() })
}

func endsTheLoop(t *testing.T, end func(*Tx)) {
	db := open(t)
	for i := range 100 {
		must(t, db.Put([]byte{byte(i)}, nil))
	}
	tx := got[*Tx](t)(db.Begin())
	n := 0
	var failed error
	for _, err := range tx.Items(Range{}) {
		if err != nil {
			failed = err
			continue
		}
		if n++; n == 3 {
			end(tx)
		}
	}
	is(t, failed, Closed)
	if n < 3 || n >= 100 {
		t.Fatal(n)
	}
}

func TestLockedKeysAreTakenInTurn(t *testing.T) {
	db := open(t)
	first, second := got[*Tx](t)(db.Begin()), got[*Tx](t)(db.Begin())
	defer second.Rollback()
	must(t, first.Lock(0, b("a"), b("b")))
	is(t, second.Lock(time.Millisecond, b("b")), KeyLocked, Retry)
	is(t, second.Lock(-1, b("b")), InvalidArgument)
	waited := make(chan error)
	go func() { waited <- second.Lock(time.Minute, b("b")) }()
	must(t, first.Put(b("b"), nil))
	must(t, first.Commit())
	must(t, <-waited)
	if v := got[[]byte](t)(second.Get(b("b"))); v == nil {
		t.Fatal("it goes on from then")
	}
	must(t, second.Put(b("b"), b("2")))
	must(t, second.Commit(Sync))
}

func TestCompareAndSwap(t *testing.T) {
	db := open(t)
	for _, step := range []struct {
		old, value []byte
		done       bool
	}{
		{nil, b("1"), true}, {nil, b("2"), false}, {b("1"), []byte{}, true}, {[]byte{}, nil, true}, {b("1"), b("3"), false},
	} {
		if got[bool](t)(db.CompareAndSwap(b("k"), step.old, step.value)) != step.done {
			t.Fatalf("%+v", step)
		}
	}
}
