//! Placeholder of point reads.

use super::Core;
use crate::key::{Prefix, Seq};
use crate::{ReadOptions, Result, Value};

#[allow(unused_variables, clippy::unimplemented)]
impl Core {
    /// The newest version at or before `seq` (`None`: as of now).
    pub(crate) fn get_at(
        &self,
        prefix: &Prefix,
        key: &[u8],
        seq: Option<Seq>,
        options: &ReadOptions,
    ) -> Result<Option<Value>> {
        unimplemented!()
    }
}
