//! [`Inbox`]: what a thread of the store's is sent, and that thread's life.
//!
//! The thread is started by the first who sends something, and ends when the inbox is closed. What is still in the
//! inbox when the thread ends, however that comes about, is dropped, which answers it.

use crate::env::Join;
use crate::sync::{Mutex, ThreadId, lock, this_thread};
use crate::{Env, Error, Result};

/// See the module. `S` is what else the thread and those who send share.
pub(super) struct Inbox<T, S = ()> {
    pub new: Vec<T>,
    pub state: S,
    pub closed: bool,
    thread: Option<Join>,
    id: Option<ThreadId>,
}

impl<T, S: Default> Default for Inbox<T, S> {
    fn default() -> Inbox<T, S> {
        Inbox { new: Vec::new(), state: S::default(), closed: false, thread: None, id: None }
    }
}

impl<T, S> Inbox<T, S> {
    /// Starts the thread if it is not there yet; to be called before anything is put in.
    pub fn start(
        &mut self,
        env: &dyn Env,
        name: &str,
        run: impl FnOnce() -> Box<dyn FnOnce() + Send>,
    ) -> Result<()> {
        if self.closed {
            return Err(Error::Closed);
        }
        if self.thread.is_none() {
            let thread = env.spawn(name, false, run());
            self.thread =
                Some(thread.map_err(|e| engineswap::Error::from_std("start a thread", &e).detail(name))?);
        }
        Ok(())
    }
}

/// Waits for the end of the thread of a closed inbox; not if this is it (a waker closes the store).
pub(super) fn join<T, S>(inbox: &Mutex<Inbox<T, S>>) {
    let mut inbox = lock(inbox);
    let thread = inbox.thread.take().filter(|_| inbox.id != Some(this_thread()));
    drop(inbox);
    if let Some(join) = thread {
        join();
    }
}

/// What the thread of an inbox holds as long as it lives.
pub(super) struct Serving<'a, T, S>(&'a Mutex<Inbox<T, S>>);

impl<'a, T, S> Serving<'a, T, S> {
    pub fn new(inbox: &'a Mutex<Inbox<T, S>>) -> Serving<'a, T, S> {
        lock(inbox).id = Some(this_thread());
        Serving(inbox)
    }
}

impl<T, S> Drop for Serving<'_, T, S> {
    fn drop(&mut self) {
        let mut inbox = lock(self.0);
        inbox.closed = true;
        let left = std::mem::take(&mut inbox.new);
        drop(inbox);
        // Which answers them.
        drop(left);
    }
}
