//! [`RangeStream`]: the pairs of a range for a task that must not block.
//!
//! It is the front half of an [`Iter`] over sources that never read. Before each step of the merge, the source that
//! moves is asked which blocks it lacks ([`Source::lacks`]). The reactor reads them, the task is woken, checks what has
//! come and goes on where it was. So between two polls nothing happens but the reads that the last one asked for, and
//! at most one window of blocks for each source is held.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;

use super::{Forward, Front, Iter, Merged, State};
use crate::db::core::Core;
use crate::db::held::Held;
use crate::db::reactor::{Answers, Question, Sent, Ticket};
use crate::db::source::Source;
use crate::merge::MergeCursor;
use crate::purpose;
use crate::table::block_read::RunRead;
use crate::table::cursor::Lacks;
use crate::table::fetch::Block;
use crate::{Error, ReadOptions, Result, Value};

/// Steps of the merge in one poll that come to nothing (deleted and overwritten versions); then others get their turn.
const STEPS: u32 = 4096;

/// Key-value pairs in key order, by [`crate::Db::range_async`]. After an error, which is yielded once, it ends.
pub struct RangeStream {
    state: Walk,
}

enum Walk {
    Open(Box<Open>),
    Failed(Error),
    Done,
}

struct Open {
    core: Arc<Core>,
    options: ReadOptions,
    merged: Merged,
    /// Those that have not come to their place; then they are the front's.
    seeking: Option<Vec<Source>>,
    asked: Option<Asked>,
    /// When the next pair has to be there, once it had to be waited for.
    ends: Option<Duration>,
}

/// What is being read.
struct Asked {
    held: Held,
    /// By source, of those that seek; each with its reads.
    lacks: Vec<(usize, Lacks, Vec<RunRead>)>,
}

/// What a poll has come to.
enum Step {
    Pair(Value, Value),
    End,
    /// These blocks have to be read, of sources by their number as long as they seek.
    Lacks(Vec<(usize, Lacks)>),
    /// It has worked for long.
    Tired,
}

impl RangeStream {
    /// The pairs that `iter` would give.
    pub(in crate::db) fn new(core: &Arc<Core>, iter: Iter, options: &ReadOptions) -> RangeStream {
        let state = match iter.state {
            State::Open(merged) => Walk::Open(Box::new(Open::new(core, *merged, options))),
            State::Failed(e) => Walk::Failed(e),
            State::Done => Walk::Done,
        };
        RangeStream { state }
    }

    /// The next pair; `None` at the end. The same as `StreamExt::next` of the `futures` crate. It may be dropped and
    /// called again.
    pub async fn next(&mut self) -> Option<Result<(Value, Value)>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for RangeStream {
    type Item = Result<(Value, Value)>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let end = match &mut self.state {
            Walk::Open(open) => match ready!(open.poll(context)) {
                Ok(Some(pair)) => return Poll::Ready(Some(Ok(pair))),
                Ok(None) => None,
                Err(e) => Some(Err(e)),
            },
            Walk::Failed(e) => Some(Err(e.clone())),
            Walk::Done => None,
        };
        self.state = Walk::Done;
        Poll::Ready(end)
    }
}

impl std::fmt::Debug for RangeStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &self.state {
            Walk::Open(open) => format!("{:?} at {}", open.merged.bounds, open.merged.seq),
            Walk::Failed(e) => format!("failed: {e}"),
            Walk::Done => "done".into(),
        };
        write!(f, "RangeStream({state})")
    }
}

impl Open {
    fn new(core: &Arc<Core>, merged: Merged, options: &ReadOptions) -> Open {
        let mut sources = Source::all(&merged.view, &merged.bounds, merged.fill_cache);
        Source::plan_without_reads(&mut sources, &merged.bounds.lower);
        let (core, seeking) = (Arc::clone(core), Some(sources));
        Open { core, options: *options, merged, seeking, asked: None, ends: None }
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<Option<(Value, Value)>>> {
        // Before any lock: in a child of the process nobody will answer.
        self.core.health.check_process()?;
        let mut left = STEPS;
        loop {
            if let Some(asked) = &self.asked {
                let answers = ready!(asked.held.poll(context))?;
                self.take(answers);
            }
            match self.step(&mut left)? {
                Step::Pair(key, value) => {
                    self.ends = None;
                    return Poll::Ready(Ok(Some((key, value))));
                }
                Step::End => return Poll::Ready(Ok(None)),
                Step::Lacks(mut lacks) => {
                    lacks.retain(|(source, lacks)| !self.try_page_cache(*source, lacks));
                    if !lacks.is_empty() {
                        self.ask(lacks, context)?;
                        return Poll::Pending;
                    }
                }
                Step::Tired => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    }

    /// Goes on as far as memory reaches, at most the steps that are `left`.
    fn step(&mut self, left: &mut u32) -> Result<Step> {
        if let Some(sources) = &mut self.seeking {
            let place = &self.merged.bounds.lower;
            let lack = |(i, source): (usize, &mut Source)| Some((i, source.lacks_for_seek(place)?));
            let lacks: Vec<_> = sources.iter_mut().enumerate().filter_map(lack).collect();
            if !lacks.is_empty() {
                return Ok(Step::Lacks(lacks));
            }
            sources.iter_mut().try_for_each(|source| source.seek_supplied(place))?;
            let mut merge = MergeCursor::new(self.seeking.take().unwrap_or_default());
            merge.start_forward();
            self.merged.front = Some(Front::new(merge));
        }
        let mut lacks = None;
        let come_to = self.merged.forward(|merge, skip| {
            *left = left.saturating_sub(1);
            let source = merge.current_source();
            lacks = match skip {
                None => source.lacks(),
                Some(skip) => {
                    if !std::mem::replace(&mut skip.planned, true) {
                        source.plan_seek(skip.to());
                    }
                    source.lacks_for_seek(skip.to())
                }
            };
            *left > 0 && lacks.is_none()
        })?;
        Ok(match (come_to, lacks) {
            (Forward::Pair(key, value), _) => Step::Pair(key, value),
            (Forward::End, _) => Step::End,
            (Forward::Stopped, Some(lacks)) => Step::Lacks(vec![(0, lacks)]),
            (Forward::Stopped, None) => Step::Tired,
        })
    }

    /// Reads a lone block that the page cache has, where that is likely.
    fn try_page_cache(&mut self, source: usize, lacks: &Lacks) -> bool {
        let odds = &self.core.odds;
        if lacks.count > 1 || !lacks.table.may_be_read_now(lacks.first) || !odds.worth_a_try() {
            return false;
        }
        let read = lacks.table.read_block_now(lacks.first, self.options.fill_cache, purpose::SCAN_READ);
        odds.tell(read.is_some());
        let Some(block) = read else { return false };
        self.supply(source, lacks, vec![block]);
        true
    }

    /// Has the reactor read what is lacking, all of it together.
    fn ask(&mut self, lacks: Vec<(usize, Lacks)>, context: &Context<'_>) -> Result<()> {
        if self.ends.is_none() {
            self.ends = self.core.ends(self.options.deadline);
        }
        let reads = |(source, lacks): (usize, Lacks)| {
            let reads =
                RunRead::all(&lacks.table, lacks.first, lacks.count, self.options.fill_cache).collect();
            (source, lacks, reads)
        };
        let lacks: Vec<(usize, Lacks, Vec<RunRead>)> = lacks.into_iter().map(reads).collect();
        let all = || lacks.iter().flat_map(|(.., reads)| reads);
        let mut answers = Vec::new();
        answers.resize_with(all().count(), || None);
        let ticket = Ticket::new(context.waker().clone(), answers.len(), Answers::Runs(answers));
        let sent = all().enumerate().map(|(i, read)| Sent::Run(read.clone(), Question::new(&ticket, i)));
        self.core.reactor.send(sent, self.ends.map(|ends| (ends, Arc::clone(&ticket))))?;
        self.asked = Some(Asked { held: Held::new(ticket, &self.core), lacks });
        Ok(())
    }

    /// Gives each source the blocks that it lacked.
    fn take(&mut self, answers: Answers) {
        let (Some(Asked { lacks, .. }), Answers::Runs(answers)) = (self.asked.take(), answers) else {
            return;
        };
        let mut answers = answers.into_iter();
        for (source, lacks, reads) in lacks {
            let mut blocks = Vec::new();
            for (read, done) in reads.iter().zip(&mut answers) {
                blocks.extend(read.finish(done.unwrap_or(Err(Error::Closed))));
            }
            self.supply(source, &lacks, blocks);
        }
    }

    fn supply(&mut self, source: usize, lacks: &Lacks, blocks: Vec<Result<Block>>) {
        if let Some(sources) = &mut self.seeking {
            sources[source].supply(lacks, blocks);
        } else if let Some(front) = &mut self.merged.front {
            front.merge.current_source().supply(lacks, blocks);
        }
    }
}

#[cfg(test)]
mod tests;
