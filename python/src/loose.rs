//! [`Loose`]: a handle of the store that is given back without the interpreter's lock.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use pyo3::Python;

/// What keeps a store open, or belongs to one. The last handle closes the store, which waits for its threads; these may
/// wait for the interpreter's lock, in a merge operator of Python's.
pub struct Loose<T: Send>(ManuallyDrop<T>);

impl<T: Send> Loose<T> {
    pub fn new(handle: T) -> Loose<T> {
        Loose(ManuallyDrop::new(handle))
    }

    /// The handle, for who gives it back himself.
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once: `this` is not dropped.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T: Send> Deref for Loose<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send> DerefMut for Loose<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Send> Drop for Loose<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let handle = unsafe { ManuallyDrop::take(&mut self.0) };
        let mut handle = Some(handle);
        // Where the interpreter is ending nobody waits for it any more.
        let _ = Python::try_attach(|py| {
            let handle = handle.take();
            py.detach(|| drop(handle));
        });
    }
}
