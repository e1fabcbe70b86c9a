//! Placeholder of the iterator.

use std::ops::Bound;
use std::sync::Arc;

use super::Core;
use crate::key::{Prefix, Seq};
use crate::{Error, ReadOptions, Result, Value};

/// Key-value pairs in key order, from both ends.
pub struct Iter {}

#[allow(unused_variables, clippy::unimplemented)]
impl Iter {
    pub(crate) fn new(
        core: &Arc<Core>,
        prefix: Prefix,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        seq: Option<Seq>,
        options: &ReadOptions,
    ) -> Iter {
        unimplemented!()
    }
    pub(crate) fn failed(e: Error) -> Iter {
        unimplemented!()
    }
}

#[allow(clippy::unimplemented)]
impl Iterator for Iter {
    type Item = Result<(Value, Value)>;
    fn next(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}
#[allow(clippy::unimplemented)]
impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}
