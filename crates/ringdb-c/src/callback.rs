//! How callbacks are called: one at a time on each thread.
//!
//! A request that memory can answer is answered in the call that makes it. Were a callback called from within another
//! one, a chain of such requests would be as many frames on the stack. So what a callback starts is answered behind it.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::result::Fail;

type Call = Box<dyn FnOnce()>;

thread_local! {
    /// `None`: no callback is running on this thread; else what is to be called behind it.
    static WAITING: RefCell<Option<VecDeque<Call>>> = const { RefCell::new(None) };
}

/// The callback that runs has ended, however that came about.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        let left = WAITING.with_borrow_mut(Option::take);
        drop(left);
    }
}

/// Calls a callback: now, or behind the one that is running on this thread.
pub(crate) fn deliver(call: impl FnOnce() + 'static) {
    let busy = WAITING.with_borrow_mut(|waiting| {
        let busy = waiting.is_some();
        waiting.get_or_insert_default();
        busy
    });
    if busy {
        let call: Call = Box::new(call);
        WAITING.with_borrow_mut(|waiting| waiting.get_or_insert_default().push_back(call));
        return;
    }
    let running = Running;
    call();
    while let Some(next) = WAITING.with_borrow_mut(|waiting| waiting.as_mut()?.pop_front()) {
        next();
    }
    drop(running);
}

/// Fails on a thread that is in a callback, for a call that may wait for that very thread.
pub(crate) fn refuse_in_a_callback(what: &str) -> Result<(), Fail> {
    if WAITING.with_borrow(Option::is_some) {
        let why = "it may wait for the thread that the callback holds up";
        return Err(Fail::invalid(format!("{what} is not for callbacks: {why}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    fn chain(left: u32, depth: Rc<Cell<u32>>, most: Rc<Cell<u32>>, done: Rc<Cell<u32>>) {
        deliver(move || {
            depth.set(depth.get() + 1);
            most.set(most.get().max(depth.get()));
            assert!(refuse_in_a_callback("this").is_err());
            done.set(done.get() + 1);
            if left > 0 {
                chain(left - 1, depth.clone(), most, done);
            }
            depth.set(depth.get() - 1);
        });
    }

    #[test]
    fn callbacks_do_not_nest() {
        let (depth, most, done) = (Rc::default(), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        chain(1_000_000, depth, Rc::clone(&most), Rc::clone(&done));
        assert_eq!((most.get(), done.get()), (1, 1_000_001));
        assert!(refuse_in_a_callback("this").is_ok());
    }
}
