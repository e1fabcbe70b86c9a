//! Placeholder of the frame arena.
use super::AlignedBuf;

/// A frame that nobody else sees, to be filled.
#[derive(Debug)]
pub struct FreeFrame(AlignedBuf);

impl std::ops::Deref for FreeFrame {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
impl std::ops::DerefMut for FreeFrame {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
