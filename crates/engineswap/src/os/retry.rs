//! System calls again, when they were interrupted or had to wait. Errors are errnos.

/// Result of a transfer: the errno on failure.
pub(crate) type Sys<T> = Result<T, i32>;

/// EAGAIN is retried this often, the thread yielding in between, before it is reported: regular files answer
/// it only in passing, and a caller should not hang on one that answers nothing else.
const MAX_AGAIN: u32 = 10_000;

/// EINTR is retried this often: calls on files end themselves sooner or later, and one that is interrupted every
/// time never will.
const MAX_INTR: u32 = 1_000;

/// Repeats `call` over EINTR and EAGAIN.
pub(super) fn retry(mut call: impl FnMut() -> Sys<usize>) -> Sys<usize> {
    let (mut again, mut interrupted) = (0, 0);
    loop {
        match call() {
            Err(libc::EINTR) if interrupted < MAX_INTR => interrupted += 1,
            Err(libc::EAGAIN) if again < MAX_AGAIN => {
                again += 1;
                std::thread::yield_now();
            }
            answer => return answer,
        }
    }
}

/// Repeats a call that moves no bytes over EINTR; EAGAIN means something to its caller.
pub(crate) fn retry_intr<T>(mut call: impl FnMut() -> Sys<T>) -> Sys<T> {
    let mut interrupted = 0;
    loop {
        match call() {
            Err(libc::EINTR) if interrupted < MAX_INTR => interrupted += 1,
            answer => return answer,
        }
    }
}
