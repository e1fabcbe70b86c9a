//! The repository's own rules, as a test: see `tests/`.
