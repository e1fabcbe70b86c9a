//! Which keys the store holds, so that each read can be judged right or wrong.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// The keys with numbers below `num` as bits; keys inserted beyond (by ycsb-d and ycsb-e) as a count, since
/// they come in order.
pub struct Presence {
    bits: Vec<AtomicU64>,
    num: u64,
    count: AtomicU64,
    /// Numbers of `num` and above that were handed out.
    handed: AtomicU64,
    /// All numbers from `num` to before this one are in the store.
    limit: AtomicU64,
    /// Inserted out of order: above `limit`.
    ahead: Mutex<BTreeSet<u64>>,
}

impl Presence {
    /// An empty store of at most `num` keys.
    pub fn new(num: u64) -> Presence {
        Presence {
            bits: (0..num.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            num,
            count: AtomicU64::new(0),
            handed: AtomicU64::new(num),
            limit: AtomicU64::new(num),
            ahead: Mutex::new(BTreeSet::new()),
        }
    }

    /// Whether key `n` was in the store at the moment of the call. Beyond the bits: whether it certainly was.
    #[inline]
    pub fn has(&self, n: u64) -> bool {
        if n >= self.num {
            return n < self.limit.load(SeqCst);
        }
        self.count.load(Relaxed) == self.num
            || self.bits[(n / 64) as usize].load(SeqCst) & (1 << (n % 64)) != 0
    }

    /// Key `n` below `num` is in the store now: call it after the write.
    #[inline]
    pub fn set(&self, n: u64) {
        let bit = 1 << (n % 64);
        let word = &self.bits[(n / 64) as usize];
        if word.load(Relaxed) & bit == 0 && word.fetch_or(bit, SeqCst) & bit == 0 {
            self.count.fetch_add(1, SeqCst);
        }
    }

    /// Key `n` below `num` is about to leave the store: call it before the deletion.
    #[inline]
    pub fn clear(&self, n: u64) {
        let bit = 1 << (n % 64);
        if self.bits[(n / 64) as usize].fetch_and(!bit, SeqCst) & bit != 0 {
            self.count.fetch_sub(1, SeqCst);
        }
    }

    /// The number of a new key to insert.
    pub fn hand_out(&self) -> u64 {
        self.handed.fetch_add(1, Relaxed)
    }

    /// The handed-out key `n` is in the store now.
    pub fn inserted(&self, n: u64) {
        let mut ahead = self.ahead.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        ahead.insert(n);
        let mut limit = self.limit.load(SeqCst);
        while ahead.remove(&limit) {
            limit += 1;
        }
        self.limit.store(limit, SeqCst);
    }

    /// Key `n`, found in an existing store.
    pub fn found(&self, n: u64) {
        if n < self.num {
            self.set(n);
        } else {
            self.handed.fetch_max(n + 1, Relaxed);
            self.inserted(n);
        }
    }

    /// The first number that was not inserted yet, in order.
    pub fn limit(&self) -> u64 {
        self.limit.load(SeqCst)
    }

    /// Keys in the store.
    pub fn len(&self) -> u64 {
        self.count.load(SeqCst)
            + (self.limit.load(SeqCst) - self.num)
            + self.ahead.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len() as u64
    }

    /// Whether all `num` keys are there.
    pub fn is_full(&self) -> bool {
        self.count.load(SeqCst) == self.num
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_and_go() {
        let p = Presence::new(100);
        assert_eq!(p.len(), 0);
        (0..100).for_each(|n| p.set(n));
        p.set(5);
        assert!(p.is_full() && p.has(99) && !p.has(100));
        p.clear(5);
        p.clear(5);
        assert!(!p.has(5) && p.has(6));
        assert_eq!(p.len(), 99);
        let (a, b) = (p.hand_out(), p.hand_out());
        assert_eq!((a, b), (100, 101));
        p.inserted(b);
        assert!(!p.has(100) && !p.has(101));
        assert_eq!(p.len(), 100);
        p.inserted(a);
        assert!(p.has(100) && p.has(101) && p.limit() == 102);
        p.found(102);
        assert_eq!(p.hand_out(), 103);
        assert_eq!(p.len(), 102);
    }
}
