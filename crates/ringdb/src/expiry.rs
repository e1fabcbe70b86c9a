//! Values that expire: the time is part of what is stored, eight bytes (little-endian milliseconds since the Unix
//! epoch) before the value. From that time on the version is a tombstone: it hides what is older and is nothing itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Env;
use crate::coding::{Reader, put_varint};
use crate::key::Kind;

/// Bytes before the value.
pub(crate) const STAMP_BYTES: usize = 8;
/// Times of expiry that are kept to know by when half of a table's have passed: at most so many.
const MOST_SAMPLES: usize = 128;

/// The time at which a stored value expires, and the value.
#[inline]
pub(crate) fn split(stored: &[u8]) -> (u64, &[u8]) {
    match stored.split_first_chunk::<STAMP_BYTES>() {
        Some((at, value)) => (u64::from_le_bytes(*at), value),
        // Decoders let none pass.
        None => (0, &[]),
    }
}

/// What is stored of a value that expires at `at`.
pub(crate) fn stamp(at: u64, value: &[u8]) -> Vec<u8> {
    [&at.to_le_bytes(), value].concat()
}

/// When something expires that lives so long from `now` on. Too long a life does not end.
pub(crate) fn after(now: u64, life: Duration) -> u64 {
    let millis = life.as_nanos().div_ceil(1_000_000);
    now.saturating_add(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// The wall clock of a store; the machine's own by default.
#[derive(Clone, Default)]
pub(crate) struct Clock(Option<Arc<dyn Env>>);

impl Clock {
    pub fn of(env: &Arc<dyn Env>) -> Clock {
        Clock(Some(Arc::clone(env)))
    }

    /// Milliseconds since the Unix epoch.
    pub fn now(&self) -> u64 {
        let now = self.0.as_ref().map_or_else(crate::env::wall_clock, |env| env.wall_clock());
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }

    /// The value of a version that expires, unless it has.
    #[cold]
    pub fn unexpired<'v>(&self, stored: &'v [u8]) -> Option<&'v [u8]> {
        let (at, value) = split(stored);
        (at > self.now()).then_some(value)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

/// A time that is looked at when it is first needed, and stays.
#[derive(Debug, Default)]
pub(crate) struct Moment(Option<u64>);

impl Moment {
    /// The clock is looked at again.
    #[inline]
    pub fn renew(&mut self) {
        self.0 = None;
    }

    /// The value of a version that expires, unless it has.
    #[inline(never)]
    pub fn unexpired<'v>(&mut self, clock: &Clock, stored: &'v [u8]) -> Option<&'v [u8]> {
        let now = *self.0.get_or_insert_with(|| clock.now());
        let (at, value) = split(stored);
        (at > now).then_some(value)
    }

    /// The value of a version of this kind, if it has one now.
    #[inline]
    pub fn value_of<'v>(&mut self, clock: &Clock, kind: Kind, stored: &'v [u8]) -> Option<&'v [u8]> {
        match kind {
            Kind::Put => Some(stored),
            Kind::Delete | Kind::Merge => None,
            Kind::Expiring => self.unexpired(clock, stored),
        }
    }
}

/// When the entries of a table expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// Entries that expire.
    pub entries: u64,
    /// When the first of them does.
    pub first: u64,
    /// By when about half of them have.
    pub half: u64,
    /// By when all of them have.
    pub last: u64,
}

impl Expiry {
    /// How many have expired, about: none, half, or all, the last only once all have.
    pub fn expired_at(&self, now: u64) -> u64 {
        match now {
            _ if now >= self.last => self.entries,
            _ if now >= self.half => self.entries.div_ceil(2),
            _ => 0,
        }
    }

    /// Appends the encoding that [`Expiry::decode`] reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for v in [self.entries, self.first, self.half, self.last] {
            put_varint(out, v);
        }
    }

    /// `None` if it is cut off or impossible.
    pub fn decode(r: &mut Reader<'_>) -> Option<Expiry> {
        let (entries, first, half, last) = (r.varint()?, r.varint()?, r.varint()?, r.varint()?);
        (entries > 0 && first <= half && half <= last).then_some(Expiry { entries, first, half, last })
    }
}

/// Gathers when the entries of a table expire. Of many it keeps every second, fourth, and so on.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    entries: u64,
    first: u64,
    last: u64,
    samples: Vec<u64>,
    /// One of 2 to the power of this is kept.
    shift: u32,
}

impl Expiries {
    pub fn add(&mut self, at: u64) {
        if self.entries & ((1 << self.shift) - 1) == 0 {
            if self.samples.len() == MOST_SAMPLES {
                let mut nth = 0;
                self.samples.retain(|_| {
                    nth += 1;
                    nth % 2 == 1
                });
                self.shift += 1;
            }
            if self.entries & ((1 << self.shift) - 1) == 0 {
                self.samples.push(at);
            }
        }
        self.first = if self.entries == 0 { at } else { self.first.min(at) };
        self.entries += 1;
        self.last = self.last.max(at);
    }

    /// `None` if no entry expires.
    pub fn finish(&mut self) -> Option<Expiry> {
        self.samples.sort_unstable();
        let half = *self.samples.get(self.samples.len() / 2)?;
        Some(Expiry { entries: self.entries, first: self.first, half, last: self.last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_read_back_and_lives_end() {
        assert_eq!(split(&stamp(77, b"value")), (77, &b"value"[..]));
        assert_eq!(split(b"short"), (0, &b""[..]));
        assert_eq!(after(5, Duration::from_nanos(1)), 6);
        assert_eq!(after(5, Duration::from_secs(2)), 2005);
        assert_eq!(after(5, Duration::MAX), u64::MAX);
    }

    #[test]
    fn half_of_a_table_expires_about_when_it_says() {
        let mut all = Expiries::default();
        assert_eq!(all.finish(), None);
        for i in 0..100_000u64 {
            all.add(i * 7919 % 100_000);
        }
        assert!(all.samples.len() <= MOST_SAMPLES);
        let e = all.finish().expect("entries");
        assert_eq!((e.entries, e.first, e.last), (100_000, 0, 99_999));
        assert!((30_000..70_000).contains(&e.half), "{}", e.half);
        assert_eq!([0, e.half, e.last].map(|now| e.expired_at(now)), [0, 50_000, 100_000]);
        let mut b = Vec::new();
        e.encode(&mut b);
        assert_eq!(Expiry::decode(&mut Reader::new(&b)), Some(e));
        for cut in 0..b.len() {
            assert_eq!(Expiry::decode(&mut Reader::new(&b[..cut])), None);
        }
        assert_eq!(Expiry::decode(&mut Reader::new(&[0, 1, 1, 1])), None);
        assert_eq!(Expiry::decode(&mut Reader::new(&[1, 1, 2, 1])), None);
        assert_eq!(Expiry::decode(&mut Reader::new(&[1, 2, 1, 2])), None);
    }
}
