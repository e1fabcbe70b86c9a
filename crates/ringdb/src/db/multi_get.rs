//! Placeholder of batched point reads.

use super::Core;
use crate::key::{Prefix, Seq};
use crate::{ReadOptions, Result, Value};

#[allow(unused_variables, clippy::unimplemented)]
impl Core {
    /// The newest versions at or before `seq` (`None`: as of now).
    pub(crate) fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        prefix: &Prefix,
        keys: &[K],
        seq: Option<Seq>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        unimplemented!()
    }
}
