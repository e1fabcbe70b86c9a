//! [`LogKeeper`]: the thread that prepares log segments, and has the manifest say which have come into use.

use crate::sync::{Condvar, Mutex, lock, wait};

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

    /// Does what is asked for, until it is closed.
    pub fn run(&self, prepare: impl Fn(), note: impl Fn()) {
        let mut asked = lock(&self.asked);
        while !asked.closing {
            let now = (std::mem::take(&mut asked.prepare), std::mem::take(&mut asked.note));
            if now == (false, false) {
                asked = wait(&self.changed, asked, &self.asked);
                continue;
            }
            asked.busy = true;
            drop(asked);
            if now.0 {
                prepare();
            }
            if now.1 {
                note();
            }
            asked = lock(&self.asked);
            asked.busy = false;
            self.changed.notify_all();
        }
    }
}
