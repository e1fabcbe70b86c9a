//! The programs of the guide (docs/guide), as doc tests. `tests/pages.rs` checks that no chapter is left out, and what
//! else of a chapter can be wrong. Its commands are run by `crates/ringdb-cli/tests/guide.rs`.

macro_rules! chapters {
    ($($name:ident $file:literal)*) => {$(
        #[cfg(doctest)]
        #[doc = include_str!(concat!("../../../docs/guide/src/", $file))]
        struct $name;
    )*};
}

chapters! {
    Introduction "introduction.md"
    FirstSteps "first-steps.md"
    Durability "durability.md"
    Tuning "tuning.md"
    Engines "engines.md"
    Operations "operations.md"
    Insight "insight.md"
    Transactions "transactions.md"
    Async "async.md"
    Keyspaces "keyspaces.md"
    Python "python.md"
    Go "go.md"
    Migration "migration.md"
    Limits "limits.md"
    Faq "faq.md"
}

/// The README of the repository.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
