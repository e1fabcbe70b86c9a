//! [`LogKeeper`]: the thread that prepares log segments, has the manifest say which have come into use, and removes the
//! spare ones when none has been needed for a while.

use std::time::Duration;

use crate::sync::{Condvar, Mutex, lock, wait, wait_briefly};

/// So long after the last segment came into use the spare ones are kept.
pub(crate) const KEEP_SPARE: Duration = Duration::from_secs(10);

/// What is asked of the thread. [`LogKeeper::run`] is the thread.
#[derive(Default)]
pub(crate) struct LogKeeper {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Default)]
struct Asked {
    prepare: bool,
    note: bool,
    busy: bool,
    closing: bool,
}

impl LogKeeper {
    /// Has log segments prepared.
    pub fn prepare(&self) {
        lock(&self.asked).prepare = true;
        self.changed.notify_all();
    }

    /// Has the manifest say how far the log is durable.
    pub fn note(&self) {
        lock(&self.asked).note = true;
        self.changed.notify_all();
    }

    /// Has the thread end. Whoever waits goes on.
    pub fn close(&self) {
        lock(&self.asked).closing = true;
        self.changed.notify_all();
    }

    /// Waits until all that was asked for is done, or could not be.
    pub fn wait(&self) {
        let mut asked = lock(&self.asked);
        while (asked.prepare || asked.note || asked.busy) && !asked.closing {
            asked = wait(&self.changed, asked, &self.asked);
        }
    }

    /// Does what is asked for, until it is closed; `remove_spare` once nothing has been asked for so long.
    pub fn run(&self, prepare: impl Fn(), note: impl Fn(), keep_spare: Duration, remove_spare: impl Fn()) {
        let mut asked = lock(&self.asked);
        let mut spare = false;
        while !asked.closing {
            let mut now = (std::mem::take(&mut asked.prepare), std::mem::take(&mut asked.note));
            if now == (false, false) && !spare {
                asked = wait(&self.changed, asked, &self.asked);
                continue;
            }
            if now == (false, false) {
                wait_briefly(&self.changed, asked, keep_spare);
                asked = lock(&self.asked);
                now = (std::mem::take(&mut asked.prepare), std::mem::take(&mut asked.note));
            }
            if asked.closing {
                break;
            }
            let idle = now == (false, false);
            spare = !idle;
            asked.busy = true;
            drop(asked);
            if now.0 {
                prepare();
            }
            if now.1 {
                note();
            }
            if idle {
                remove_spare();
            }
            asked = lock(&self.asked);
            asked.busy = false;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn spare_segments_go_once_nothing_is_asked_for() {
        let (keeper, prepared, removed) = (LogKeeper::default(), AtomicU32::new(0), AtomicU32::new(0));
        let count = |n: &AtomicU32| _ = n.fetch_add(1, SeqCst);
        std::thread::scope(|s| {
            s.spawn(|| {
                keeper.run(|| count(&prepared), || {}, Duration::from_millis(20), || count(&removed));
            });
            for round in 1..4 {
                keeper.prepare();
                keeper.wait();
                while removed.load(SeqCst) < round {
                    std::thread::yield_now();
                }
                assert_eq!(prepared.load(SeqCst), round);
            }
            // Once for each time that it was busy.
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(removed.load(SeqCst), 3);
            keeper.close();
        });
    }
}
