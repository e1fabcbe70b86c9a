//! Bodies of answers: bytes, or the pairs of a range as they come.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use hyper::body::{Body, Frame, SizeHint};
use ringdb::{RangeStream, Value};

use crate::keys::encode_pair;

/// Bytes that a frame has at least, if as many are there.
const FRAME: usize = 16 << 10;

/// The body of an answer.
pub enum Answer {
    /// All of it.
    Whole(Option<Bytes>),
    /// Lines.
    Rows(Box<Rows>),
}

impl Answer {
    /// All at once.
    pub fn whole(bytes: Bytes) -> Answer {
        Answer::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// The pairs of a range.
    pub fn rows(rows: Rows) -> Answer {
        Answer::Rows(Box::new(rows))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = ringdb::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ringdb::Error>>> {
        match &mut *self {
            Answer::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Answer::Rows(rows) => rows.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Answer::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Answer::Rows(_) => SizeHint::default(),
        }
    }
}

/// Pairs as lines. The store is asked for more only when the client has taken what was there: hyper polls no further.
pub struct Rows {
    first: Option<(Value, Value)>,
    pairs: RangeStream,
    left: u64,
}

impl Rows {
    /// `first`, then `pairs`, `limit` together at most.
    pub fn new(first: Option<(Value, Value)>, pairs: RangeStream, limit: u64) -> Rows {
        Rows { first, pairs, left: limit }
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<ringdb::Result<(Value, Value)>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let pair = match self.first.take() {
            Some(first) => Some(Ok(first)),
            None => ready!(Pin::new(&mut self.pairs).poll_next(context)),
        };
        self.left -= 1;
        Poll::Ready(pair)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<ringdb::Result<Frame<Bytes>>>> {
        let mut lines = Vec::new();
        while lines.len() < FRAME {
            match self.next(context) {
                Poll::Ready(Some(Ok((key, value)))) => encode_pair(&key, &value, &mut lines),
                Poll::Ready(Some(Err(e))) => return Poll::Ready(Some(Err(e))),
                Poll::Ready(None) if lines.is_empty() => return Poll::Ready(None),
                Poll::Pending if lines.is_empty() => return Poll::Pending,
                // The rest comes with the next frame.
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Some(Ok(Frame::data(lines.into()))))
    }
}
