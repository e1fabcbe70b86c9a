//! [`Task`]: a future, and whom to tell what becomes of it.
//!
//! It is polled by the thread that starts it, then by whoever wakes it: a thread of the store's, or the one that closes
//! the store. No executor stands in between. While a thread polls, the future is with it and not behind the lock, so
//! that a waker that is called meanwhile, on any thread, finds the lock free.

use std::future::Future;
use std::mem::replace;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// See the module.
struct Task<F, D> {
    state: Mutex<State<F, D>>,
}

enum State<F, D> {
    /// To be polled when it is woken.
    Waiting(F, D),
    /// A thread polls it; whether it was woken meanwhile.
    Polled { woken: bool },
    /// A thread polls it, and is to drop it then.
    Unwanted,
    /// Its end was told, or is about to be.
    Told,
    /// Nobody will be told.
    Cancelled,
}

impl<F, D> Task<F, D>
where
    F: Future<Output: 'static> + Unpin + Send + 'static,
    D: FnOnce(F::Output) + Send + 'static,
{
    fn lock(&self) -> MutexGuard<'_, State<F, D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drive(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let (mut future, told) = match replace(&mut *state, State::Polled { woken: false }) {
                State::Waiting(future, told) => (future, told),
                State::Polled { .. } => {
                    *state = State::Polled { woken: true };
                    return;
                }
                other => {
                    *state = other;
                    return;
                }
            };
            drop(state);
            let waker = Waker::from(Arc::clone(self));
            let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
            let mut state = self.lock();
            match (polled, &*state) {
                (_, State::Unwanted) => {
                    *state = State::Cancelled;
                    drop(state);
                    // Both run code of others.
                    drop((future, told));
                    return;
                }
                (Poll::Ready(output), _) => {
                    *state = State::Told;
                    drop(state);
                    drop(future);
                    told(output);
                    return;
                }
                (Poll::Pending, State::Polled { woken: true }) => *state = State::Waiting(future, told),
                (Poll::Pending, _) => {
                    *state = State::Waiting(future, told);
                    return;
                }
            }
        }
    }
}

impl<F, D> Wake for Task<F, D>
where
    F: Future<Output: 'static> + Unpin + Send + 'static,
    D: FnOnce(F::Output) + Send + 'static,
{
    fn wake(self: Arc<Self>) {
        self.drive();
    }
}

/// What a handle to a task can do.
pub(crate) trait Cancel: Send + Sync {
    /// Whether nobody has been told of its end, nor will be.
    fn cancel(&self) -> bool;
}

impl<F, D> Cancel for Task<F, D>
where
    F: Future<Output: 'static> + Unpin + Send + 'static,
    D: FnOnce(F::Output) + Send + 'static,
{
    fn cancel(&self) -> bool {
        let mut state = self.lock();
        match replace(&mut *state, State::Cancelled) {
            State::Told => {
                *state = State::Told;
                false
            }
            State::Polled { .. } | State::Unwanted => {
                *state = State::Unwanted;
                true
            }
            gone @ State::Waiting(..) => {
                drop(state);
                drop(gone);
                true
            }
            State::Cancelled => true,
        }
    }
}

/// Begins a future; tells what becomes of it here, if it has nothing to wait for, or later. Who wants to cancel it is
/// given a handle before anything can be told elsewhere; `None` if everything has been.
pub(crate) fn start<F, D>(mut future: F, told: D, handle: impl FnOnce(Option<Arc<dyn Cancel>>))
where
    F: Future<Output: 'static> + Unpin + Send + 'static,
    D: FnOnce(F::Output) + Send + 'static,
{
    // Most reads end here, without an allocation.
    if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
        handle(None);
        told(output);
        return;
    }
    // What woke the first waker is seen by the second poll.
    let task = Arc::new(Task { state: Mutex::new(State::Waiting(future, told)) });
    handle(Some(Arc::<Task<F, D>>::clone(&task)));
    task.drive();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Ready when something was sent; whom to wake is told with each poll. Counts those that live.
    struct Sent {
        from: Receiver<u32>,
        polls: Sender<Waker>,
        live: Arc<AtomicUsize>,
        /// Wakes itself so often, while it is polled.
        restless: u32,
    }

    impl Future for Sent {
        type Output = u32;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
            if self.restless > 0 {
                self.restless -= 1;
                context.waker().wake_by_ref();
            }
            let _ = self.polls.send(context.waker().clone());
            self.from.try_recv().map_or(Poll::Pending, Poll::Ready)
        }
    }

    impl Drop for Sent {
        fn drop(&mut self) {
            self.live.fetch_sub(1, SeqCst);
        }
    }

    struct Bench {
        to: Sender<u32>,
        polls: Receiver<Waker>,
        told: Receiver<u32>,
        handle: Option<Arc<dyn Cancel>>,
        live: Arc<AtomicUsize>,
    }

    fn begin(restless: u32, first: Option<u32>) -> Bench {
        let ((to, from), (poll, polls), (tell, told)) = (channel(), channel(), channel());
        let live = Arc::new(AtomicUsize::new(1));
        first.into_iter().for_each(|n| to.send(n).unwrap());
        let mut handle = None;
        let future = Sent { from, polls: poll, live: Arc::clone(&live), restless };
        start(future, move |n| tell.send(n).unwrap(), |h| handle = h);
        Bench { to, polls, told, handle, live }
    }

    impl Bench {
        fn last_waker(&self) -> Waker {
            self.polls.try_iter().last().unwrap()
        }
    }

    #[test]
    fn what_is_ready_is_told_at_once_and_the_rest_when_it_is_woken() {
        let b = begin(0, Some(5));
        assert!(b.handle.is_none());
        assert_eq!(b.told.try_recv(), Ok(5));
        let b = begin(0, None);
        let waker = b.last_waker();
        waker.wake_by_ref();
        assert!(b.told.try_recv().is_err());
        b.to.send(6).unwrap();
        waker.wake();
        assert_eq!(b.told.try_recv(), Ok(6));
        assert_eq!(b.live.load(SeqCst), 0, "the future is gone when its end is told");
        assert!(!b.handle.unwrap().cancel(), "told");
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again() {
        let b = begin(4, None);
        assert_eq!(
            b.polls.try_iter().count(),
            5,
            "the first wakes nobody, three wake the task, the last nobody"
        );
        b.to.send(7).unwrap();
        assert!(b.told.try_recv().is_err());
        assert!(b.handle.unwrap().cancel());
    }

    #[test]
    fn what_is_cancelled_is_never_told_and_leaves_nothing() {
        let b = begin(0, None);
        let (waker, handle) = (b.last_waker(), b.handle.unwrap());
        assert!(handle.cancel() && handle.cancel());
        assert_eq!(b.live.load(SeqCst), 0);
        let _ = b.to.send(8);
        waker.wake();
        assert!(b.told.recv().is_err(), "nobody is left who could tell");
    }

    #[test]
    fn cancelling_beside_a_wake_either_tells_or_does_not() {
        let (mut told, mut cancelled) = (0, 0);
        for _ in 0..2000 {
            let b = begin(0, None);
            let (waker, handle) = (b.last_waker(), b.handle.unwrap());
            b.to.send(9).unwrap();
            let other = std::thread::spawn(move || waker.wake());
            let never = handle.cancel();
            other.join().unwrap();
            assert_eq!(b.told.try_recv().is_err(), never);
            assert_eq!(b.live.load(SeqCst), 0);
            *if never { &mut cancelled } else { &mut told } += 1;
        }
        println!("{told} told, {cancelled} cancelled");
    }
}
