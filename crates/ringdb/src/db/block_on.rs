//! [`block_on`]: a future's output for a thread that may wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::{Condvar, Mutex, lock, wait};

#[derive(Default)]
struct Sleeper {
    woken: Mutex<bool>,
    call: Condvar,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *lock(&self.woken) = true;
        self.call.notify_all();
    }
}

/// Waits for a future.
pub(super) fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut woken = lock(&sleeper.woken);
        while !std::mem::take(&mut *woken) {
            woken = wait(&sleeper.call, woken, &sleeper.woken);
        }
    }
}
