//! Checks of what a caller passes.

pub(crate) use c_abi::args::*;
use engineswap::Purpose;

use crate::result::Fail;

pub(crate) fn purpose(purpose: u32) -> Result<Purpose, Fail> {
    match u8::try_from(purpose) {
        Ok(p) if (p as usize) < Purpose::COUNT => Ok(Purpose(p)),
        _ => Err(Fail::invalid(format!("purpose {purpose}; purposes run from 0 to {}", Purpose::COUNT - 1))),
    }
}
