//! [`Operands`]: the operands of one key, gathered from either end, and what comes of them.

use super::registry::{Operator, no_operator};
use crate::key::{MAX_VALUE_BYTES, Seq};
use crate::{Error, Result};

/// So many operands of a size become one, if the operator knows how: each is copied once for each power of this that
/// there are.
const FAN: usize = 32;

/// One, or several merged into one.
#[derive(Clone)]
struct Operand {
    /// How often operands have been merged into it; falls from the first to the last of a key.
    times: u32,
    /// The number of the newest.
    seq: Seq,
    bytes: Vec<u8>,
}

/// The operands of one key, as they come: newest first, or oldest first.
#[derive(Clone)]
pub(crate) struct Operands {
    operator: Option<Operator>,
    newest_first: bool,
    all: Vec<Operand>,
    bytes: usize,
    /// The operator does not merge operands without a value.
    partial: bool,
}

impl Operands {
    pub fn new(operator: Option<Operator>, newest_first: bool) -> Operands {
        Operands { operator, newest_first, all: Vec::new(), bytes: 0, partial: true }
    }

    /// Adds the next operand of `key`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they take more memory than the largest value.
    pub fn push(&mut self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.push_numbered(key, 0, operand);
        if self.bytes > MAX_VALUE_BYTES {
            return Err(Error::Invalid(format!(
                "the operands of key \"{}\" take more than {MAX_VALUE_BYTES} bytes (1 GiB)",
                crate::key::printable(key)
            )));
        }
        Ok(())
    }

    /// The same with its number, whatever the bytes.
    pub fn push_numbered(&mut self, key: &[u8], seq: Seq, operand: &[u8]) {
        self.bytes += size_of::<Operand>() + operand.len();
        self.all.push(Operand { times: 0, seq, bytes: operand.to_vec() });
        while self.partial && self.ends_alike() {
            self.collapse(key, self.all.len() - FAN);
        }
    }

    /// Makes one of all, if the operator knows how.
    pub fn collapse_all(&mut self, key: &[u8]) {
        if self.partial && self.all.len() > 1 {
            self.collapse(key, 0);
        }
    }

    /// Those that are left, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Seq, &[u8])> {
        self.all.iter().map(|o| (o.seq, o.bytes.as_slice()))
    }

    /// The memory of those that are left.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the last operands are so many of a size.
    fn ends_alike(&self) -> bool {
        let tail = self.all.len().checked_sub(FAN).map(|at| &self.all[at..]);
        tail.is_some_and(|tail| tail.iter().all(|o| o.times == tail[0].times))
    }

    /// Makes one operand of those from `at` on, if the operator knows how.
    fn collapse(&mut self, key: &[u8], at: usize) {
        let tail: Vec<&[u8]> = self.oldest_first(at);
        let Some(made) = self.operator.as_ref().and_then(|o| o.partial_merge(key, &tail)) else {
            self.partial = false;
            return;
        };
        let (times, tail) = (self.all[at].times + 1, self.all.drain(at..));
        let seq = tail.map(|o| o.seq).max().unwrap_or(0);
        self.all.push(Operand { times, seq, bytes: made });
        self.bytes = self.all.iter().map(|o| size_of::<Operand>() + o.bytes.len()).sum();
    }

    fn oldest_first(&self, from: usize) -> Vec<&[u8]> {
        let mut all: Vec<&[u8]> = self.all[from..].iter().map(|o| o.bytes.as_slice()).collect();
        if self.newest_first {
            all.reverse();
        }
        all
    }

    /// The value that comes of what was before the operands and them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no operator, this open does not know it, or it fails.
    pub fn resolve(&self, key: &[u8], value: Option<&[u8]>) -> Result<Vec<u8>> {
        let operator = self.operator.as_ref().ok_or_else(no_operator)?;
        operator.merge(key, value, &self.oldest_first(0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry::Registry;
    use super::*;

    fn gathered(name: &str, newest_first: bool, n: u64) -> Operands {
        let mut operands = Operands::new(Some(Registry::default().find(name)), newest_first);
        for i in 0..n {
            let i = if newest_first { n - 1 - i } else { i };
            operands.push(b"\0k", format!("{i};").as_bytes()).unwrap();
        }
        operands
    }

    #[test]
    fn order_is_kept_from_either_end_and_few_are_left() {
        let whole: String = (0..5000).map(|i| format!("{i};")).collect();
        for newest_first in [false, true] {
            let operands = gathered("append", newest_first, 5000);
            assert!(operands.all.len() < 3 * FAN, "{}", operands.all.len());
            assert_eq!(operands.bytes(), whole.len() + operands.all.len() * size_of::<Operand>());
            let value = operands.resolve(b"\0k", Some(b"<")).unwrap();
            assert_eq!(String::from_utf8(value).unwrap(), format!("<{whole}"));
        }
    }

    #[test]
    fn empty_operands_that_stay_apart_are_counted() {
        let mut operands = Operands::new(None, true);
        (0..1000).for_each(|_| operands.push(b"\0k", b"").unwrap());
        assert!(operands.all.len() == 1000 && operands.bytes() >= 32_000, "{}", operands.bytes());
    }

    #[test]
    fn without_an_operator_it_is_said_what_to_do() {
        let unknown = gathered("nobody's", true, 100);
        let e = unknown.resolve(b"\0k", None).unwrap_err().to_string();
        assert!(e.contains("'nobody's'") && e.contains("register_merge_operator"), "{e}");
        let none = Operands::new(None, true);
        assert!(none.resolve(b"\0k", None).unwrap_err().to_string().contains("with_merge_operator"));
    }
}
