//! The published experiments, by the system that they come from. What each printed is told in a line; the sources have
//! the rest.

mod s1;
mod s2;
mod s2_async;
mod s2_poll;
mod s3;
mod s4;
mod s5;

use super::study::Entry;

/// All of them, in the order of their ids.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    [s1::ALL, s2::ALL, s2_async::ALL, s2_poll::ALL, s3::ALL, s4::ALL, s5::ALL].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::lab::study::How;

    #[test]
    fn every_experiment_is_there_once_and_says_what_it_repeats() {
        let ids: Vec<&str> = all().map(|e| e.id).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "an id is there twice");
        let of = |system: &str| ids.iter().filter(|id| id.starts_with(system)).count();
        assert_eq!(["s1-e", "s2-e", "s2-a", "s3-e", "s4-e", "s5-e"].map(of), [3, 31, 5, 4, 2, 3]);
        for e in all() {
            let told = !e.asks.is_empty() && !e.original.is_empty();
            match e.how {
                How::Here(_) => assert!(told, "{} does not say what it repeats", e.id),
                How::Needs(what) => assert!(!what.is_empty(), "{}", e.id),
            }
        }
    }
}
