//! Safety rules that tests break on purpose, one at a time, to see that the suite would notice.
//!
//! Only with the feature `mutations`; without it every question here is answered "no" at compile time and nothing is
//! left of it.

macro_rules! mutations {
    ($($(#[doc = $doc:literal])* $name:ident $text:literal),* $(,)?) => {
        /// A rule that can be broken.
        #[cfg_attr(not(feature = "mutations"), allow(dead_code))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation { $($(#[doc = $doc])* $name),* }

        #[cfg(feature = "mutations")]
        impl Mutation {
            /// All of them.
            pub const ALL: &'static [Mutation] = &[$(Mutation::$name),*];

            /// Its name, and in the words of its documentation what is broken.
            pub fn describe(self) -> (&'static str, &'static str) {
                match self { $(Mutation::$name => ($text, concat!($($doc),*))),* }
            }
        }
    };
}

mutations! {
    /// New tables are named in the manifest without a sync of their directory.
    SkipDirectorySync "skip-directory-sync",
    /// No name in the store's directory is ever synced.
    SkipEveryDirectorySync "skip-every-directory-sync",
    /// New tables are named in the manifest without a sync of their bytes.
    SkipTableSync "skip-table-sync",
    /// A durable write returns before its log is synced.
    AcknowledgeBeforeSync "acknowledge-before-sync",
    /// A failed sync of the log is taken for a successful one.
    IgnoreFailedSync "ignore-failed-sync",
    /// The inputs of a compaction are removed before the edit that says so is durable.
    UnlinkBeforeManifest "unlink-before-manifest",
    /// Log segments are given up before the flush that makes them superfluous is durable.
    ReleaseLogEarly "release-log-early",
    /// The checksum of a frame does not cover its segment's number and its place.
    TrustRecycledFrame "trust-recycled-frame",
    /// Replay takes a frame whose payload does not match its checksum.
    BelieveTornTail "believe-torn-tail",
    /// Replay goes on behind a place where a frame is missing.
    ReplayOverGap "replay-over-gap",
    /// A write that came to the disk in part is taken for a whole one.
    IgnoreShortWrite "ignore-short-write",
    /// A write can be read, and is flushed, before it is in the log.
    PublishBeforeLog "publish-before-log",
    /// Compactions drop deletions while older versions lie deeper.
    DropTombstones "drop-tombstones",
    /// Compactions drop what has expired while older versions lie deeper.
    DropExpired "drop-expired",
    /// Compactions drop what a compaction filter removes while older versions lie deeper.
    DropFiltered "drop-filtered",
    /// After a recovery numbers are given out again that the log has used.
    ReuseSequenceNumbers "reuse-sequence-numbers",
    /// After a sync of the store's directory has failed, a later one that succeeds is believed.
    ForgetFailedDirectorySync "forget-failed-directory-sync",
    /// Edits of the manifest are not synced.
    SkipManifestSync "skip-manifest-sync",
    /// CURRENT names a manifest that is not durable.
    CurrentBeforeManifest "current-before-manifest",
    /// CURRENT is put in force before its own bytes are durable.
    SkipCurrentSync "skip-current-sync",
    /// The manifest says that it is durable up to the end of the edit that is just being written.
    MarkEarly "mark-early",
    /// The manifest says that the newest segment of the log has a durable frame, and its name, when neither is known.
    VouchEarly "vouch-early",
    /// The store goes on writing after a failure of the log or the manifest.
    GoOnAfterFailure "go-on-after-failure",
    /// A sync of everything written so far does nothing.
    SyncNothing "sync-nothing",
    /// The future of a durable write is ready before its log is synced.
    ResolveBeforeSync "resolve-before-sync",
    /// A transaction is committed whatever has been written since it began.
    SkipValidation "skip-validation",
    /// A flush leaves out the range tombstones of its memtables.
    ForgetRangesAtFlush "forget-ranges-at-flush",
    /// A flush or compaction takes the operands of a key for all that there is of it.
    MergeIntoNothing "merge-into-nothing",
    /// A range tombstone leaves the list although tables need it.
    DropRangesEarly "drop-ranges-early",
}

#[cfg(feature = "mutations")]
mod on {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    use super::Mutation;

    static BROKEN: AtomicU8 = AtomicU8::new(0);

    /// Breaks a rule for all stores of this process; `None` mends it.
    pub fn set(mutation: Option<Mutation>) {
        BROKEN.store(mutation.map_or(0, |m| m as u8 + 1), Relaxed);
        engineswap::ignore_short_writes(mutation == Some(Mutation::IgnoreShortWrite));
    }

    pub(crate) fn broken(m: Mutation) -> bool {
        BROKEN.load(Relaxed) == m as u8 + 1
    }
}

#[cfg(feature = "mutations")]
pub(crate) use on::broken;
#[cfg(feature = "mutations")]
pub use on::set;

/// Whether a rule is broken.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub(crate) const fn broken(_: Mutation) -> bool {
    false
}
