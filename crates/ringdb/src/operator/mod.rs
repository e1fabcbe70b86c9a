//! Merge operators: what makes one value out of a value and the operands that were merged into it.
//!
//! - [`MergeOperator`]: what an operator can do; [`built_in`]: those that every store has.
//! - [`registry`]: which operator each keyspace of an open store has.
//! - [`operands`]: those of one key, gathered from either end and kept few by partial merges.

pub(crate) mod built_in;
pub(crate) mod operands;
pub(crate) mod registry;

/// Makes one value out of what a key has and the operands that [`crate::Keyspace::merge`] has added since.
///
/// A keyspace has at most one operator, known by its name ([`crate::KeyspaceOptions::with_merge_operator`]). `add`,
/// `max`, `append` and `append:SEPARATOR` are built in; others are registered at each open
/// ([`crate::Options::register_merge_operator`]). An operator of one name must not change what it does: the store keeps
/// operands, and merges them when it reads or compacts.
///
/// The calls come from any thread, also from compactions, and must not call the store. What one returns must depend on
/// its arguments only. A panic counts as an error.
///
/// ```
/// use ringdb::{Db, KeyspaceOptions, MergeOperator, Options};
///
/// /// Keeps the shortest text.
/// struct Shortest;
///
/// impl MergeOperator for Shortest {
///     fn name(&self) -> &str {
///         "shortest"
///     }
///     fn merge(&self, _key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
///         let all = value.into_iter().chain(operands.iter().copied());
///         Ok(all.min_by_key(|text| text.len()).unwrap_or_default().to_vec())
///     }
///     fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
///         self.merge(key, None, operands).ok()
///     }
/// }
///
/// # fn main() -> ringdb::Result<()> {
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// let db = Db::open(dir.path(), Options::default().register_merge_operator(Shortest))?;
/// let names = db.keyspace_with("names", &KeyspaceOptions::default().with_merge_operator("shortest"))?;
/// names.merge("unit", "metres")?;
/// names.merge("unit", "m")?;
/// names.merge("unit", "metre")?;
/// assert_eq!(names.get("unit")?.as_deref(), Some(&b"m"[..]));
/// # Ok(())
/// # }
/// ```
pub trait MergeOperator: Send + Sync + 'static {
    /// What keyspaces know it by: 1 to 255 bytes.
    fn name(&self) -> &str;

    /// The value that comes of `value` (what was put; `None` if there is nothing, or it was deleted) and then
    /// `operands`, at least one, oldest first.
    ///
    /// # Errors
    /// Why there is none: reads of the key fail with it, and nothing is lost.
    fn merge(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String>;

    /// One operand that does the same as `operands`, at least two, oldest first; `None` if there is none, or it is not
    /// known how. With it compactions and reads keep few operands of a key, however many there are. It must be
    /// associative: operands that were merged are merged again, with others that came before or after them.
    fn partial_merge(&self, _key: &[u8], _operands: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }

    /// Why this can be no operand: asked before it is written.
    ///
    /// # Errors
    /// The write fails with what it says.
    fn check(&self, _operand: &[u8]) -> Result<(), String> {
        Ok(())
    }
}
