//! Writes with a claim, beside frames that are on their way.

use std::sync::mpsc;
use std::time::Duration;

use super::reads::{Claim, ReadSet, Verdict};
use super::tests::{Bench, LONG};
use super::*;

fn key(id: u64) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

/// Commits an operation that has read others as of `basis`.
fn claim(queue: &CommitQueue<super::tests::Fake>, id: u64, read: &[u64], basis: Seq) -> Result<Verdict> {
    let reads = ReadSet::new(read.iter().map(|id| key(*id)), vec![]);
    let op = [8u64.to_le_bytes(), id.to_le_bytes()].concat();
    let write = Write { parts: &[&op], count: 1, batches: 1, single: None };
    queue.commit_checked(&write, Durability::Sync, &Claim { reads: &reads, basis, most: usize::MAX })
}

fn spawn(bench: &Bench, id: u64, read: &'static [u64], basis: Seq) -> mpsc::Receiver<Result<Verdict>> {
    let (queue, (tell, told)) = (bench.queue.clone(), mpsc::channel());
    std::thread::spawn(move || tell.send(claim(&queue, id, read, basis)));
    told
}

#[test]
fn what_has_been_written_since_is_a_conflict_however_it_is_logged() {
    for pipelined in [false, true] {
        let bench = Bench::new(pipelined, 2, u64::MAX);
        bench.queue.open_transaction();
        bench.commit(1, 8, Durability::Process).unwrap();
        bench.commit(2, 8, Durability::None).unwrap();
        for (id, seq) in [(1, 1), (2, 2)] {
            let refused = claim(&bench.queue, 9, &[id], 0).unwrap();
            assert_eq!(refused, Verdict::Conflict { key: key(id), seq });
        }
        assert_eq!(claim(&bench.queue, 3, &[1, 2, 7], 2).unwrap(), Verdict::Committed);
        // What was committed with a claim counts itself.
        assert_eq!(claim(&bench.queue, 9, &[3], 2).unwrap(), Verdict::Conflict { key: key(3), seq: 3 });
        bench.queue.close_transaction();
        assert_eq!(bench.env().update(|s| s.visible), 3);
    }
}

#[test]
fn a_frame_on_its_way_is_a_conflict_before_anybody_sees_it() {
    let bench = Bench::new(true, 2, u64::MAX);
    bench.queue.open_transaction();
    let leader = bench.lead(1);
    assert_eq!(claim(&bench.queue, 9, &[1], 0).unwrap(), Verdict::Conflict { key: key(1), seq: 1 });
    // Who waits for what it conflicts with waits until that can be read.
    let (queue, (tell, told)) = (bench.queue.clone(), mpsc::channel());
    std::thread::spawn(move || tell.send(queue.wait_applied(1)));
    assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
    bench.release(1);
    leader.wait().unwrap();
    told.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(claim(&bench.queue, 2, &[1], 1).unwrap(), Verdict::Committed);
}

#[test]
fn what_went_on_its_way_before_the_first_transaction_is_not_known() {
    let bench = Bench::new(true, 2, u64::MAX);
    let leader = bench.lead(1);
    bench.queue.open_transaction();
    assert_eq!(claim(&bench.queue, 9, &[5], 0).unwrap(), Verdict::Unknown { settle: 1 });
    bench.release(1);
    leader.wait().unwrap();
    bench.queue.wait_applied(1).unwrap();
    assert_eq!(claim(&bench.queue, 2, &[5], 1).unwrap(), Verdict::Committed);
}

#[test]
fn a_claim_that_waits_for_a_slot_is_judged_when_it_takes_its_number() {
    let bench = Bench::new(true, 1, u64::MAX);
    bench.queue.open_transaction();
    let leader = bench.lead(1);
    let before = bench.join(2, 8);
    let waiting = |n: usize| {
        let start = std::time::Instant::now();
        while lock(&bench.queue.state).waiting.len() < n {
            assert!(start.elapsed() < LONG);
            std::thread::yield_now();
        }
    };
    let refused = spawn(&bench, 3, &[2], 0);
    waiting(2);
    let taken = spawn(&bench, 4, &[3], 0);
    waiting(3);
    // Not into the frame of one that may be refused.
    let behind = bench.join(5, 8);
    waiting(4);
    bench.release(1);
    leader.wait().unwrap();
    before.wait().unwrap();
    assert_eq!(refused.recv_timeout(LONG).unwrap().unwrap(), Verdict::Conflict { key: key(2), seq: 2 });
    assert_eq!(taken.recv_timeout(LONG).unwrap().unwrap(), Verdict::Committed);
    behind.wait().unwrap();
    assert_eq!(bench.env().update(|s| s.visible), 4);
}

#[test]
fn who_waits_for_a_frame_that_fails_learns_of_it() {
    let bench = Bench::new(true, 1, u64::MAX);
    bench.queue.open_transaction();
    bench.env().update(|s| s.failing.insert(1));
    let leader = bench.lead(1);
    let (queue, (tell, told)) = (bench.queue.clone(), mpsc::channel());
    std::thread::spawn(move || tell.send(queue.wait_applied(1)));
    while lock(&bench.queue.state).watchers == 0 {
        std::thread::yield_now();
    }
    bench.release(1);
    leader.wait().unwrap_err();
    assert!(matches!(told.recv_timeout(LONG).unwrap(), Err(Error::Stopped(_))));
    assert!(matches!(claim(&bench.queue, 2, &[], 0), Err(Error::Stopped(_))));
}
