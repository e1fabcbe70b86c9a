//! [`Published`]: a shared value that can be replaced while it is read.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{Collector, Guard};
use crate::sync::atomic::{AtomicPtr, Ordering::*};

/// A shared value that can be replaced while it is read.
pub struct Published<T: Send + Sync + 'static> {
    collector: Collector,
    /// Of what is retired here.
    owner: u64,
    ptr: AtomicPtr<Node<T>>,
    _owns: PhantomData<Arc<T>>,
}

struct Node<T> {
    /// The epoch before it was published.
    birth: u64,
    value: Arc<T>,
}

impl<T: Send + Sync + 'static> Published<T> {
    /// Publishes `value`, to be read under guards of `collector`.
    pub fn new(collector: &Collector, value: Arc<T>) -> Published<T> {
        let ptr = AtomicPtr::new(node(collector, value));
        Published { collector: collector.clone(), owner: collector.0.owner(), ptr, _owns: PhantomData }
    }

    /// The collector whose guards are needed.
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Pins the calling thread, for [`Published::load`].
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        self.collector.pin()
    }

    /// The present value, without touching its reference count. Panics if the guard is of another collector.
    #[inline]
    pub fn load<'g>(&'g self, guard: &'g Guard<'_>) -> &'g Arc<T> {
        guard.check(&self.collector);
        loop {
            let now = self.ptr.load(SeqCst);
            if guard.covers_now() {
                // SAFETY: `now` is a live box: `store` retires the old one after unlinking it by a SeqCst exchange,
                // and the guard keeps it from being dropped (see the module's argument). The reference also borrows
                // `self`, so Published is not dropped meanwhile.
                return &unsafe { &*now }.value;
            }
        }
    }

    /// The present value, counted.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(self.load(&self.pin()))
    }

    /// Replaces the value. The old one is let go when no guard can see it.
    pub fn store(&self, value: Arc<T>) {
        let old = self.ptr.swap(node(&self.collector, value), SeqCst);
        // SAFETY: nothing drops it before it is retired, which only we do: the exchange gave it to us alone.
        let birth = unsafe { (*old).birth };
        self.collector.0.retire_value(Box::new(Unlinked(old)), birth, self.owner);
    }
}

/// A node that readers may still look at: not a box before its end, since a box would claim to be the only way to it.
struct Unlinked<T>(*mut Node<T>);

// SAFETY: a box in all but its type, of something that is Send.
unsafe impl<T: Send + Sync> Send for Unlinked<T> {}

impl<T> Drop for Unlinked<T> {
    fn drop(&mut self) {
        // SAFETY: from Box::into_raw, unlinked once; dropped when no guard that could see it is left.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

fn node<T>(collector: &Collector, value: Arc<T>) -> *mut Node<T> {
    Box::into_raw(Box::new(Node { birth: collector.0.epoch.load(SeqCst), value }))
}

impl<T: Send + Sync + 'static> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: from Box::into_raw; exclusive access, and loads borrow `self`, so nobody sees it any more.
        drop(unsafe { Box::from_raw(*self.ptr.get_mut()) });
        // What waits may hold the collector: it would wait for ever.
        self.collector.0.drop_values_of(self.owner);
    }
}

impl<T: Send + Sync + std::fmt::Debug + 'static> std::fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Published").field(self.load(&self.pin())).finish()
    }
}
