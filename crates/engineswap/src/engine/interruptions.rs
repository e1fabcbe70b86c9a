//! Calls that signals interrupt.

/// Counts interruptions of one queue's calls in a row. Signals may interrupt every wait, so after many of them the
/// queue looks without waiting; a call that does not wait and is interrupted as often is broken.
#[derive(Default)]
pub(crate) struct Interruptions(u32);

impl Interruptions {
    const MANY: u32 = 1_000;

    /// How many completions to wait for.
    pub(crate) fn wait_for(&self, min: usize) -> usize {
        if self.0 <= Self::MANY { min } else { 0 }
    }

    pub(crate) fn none(&mut self) {
        self.0 = 0;
    }

    /// Another one; false if there will be no end to them.
    pub(crate) fn one_more(&mut self) -> bool {
        self.0 += 1;
        if self.0 > Self::MANY {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        self.0 <= 2 * Self::MANY
    }
}
