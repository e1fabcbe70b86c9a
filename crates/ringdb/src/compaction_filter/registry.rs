//! Which filters an open knows ([`FilterRegistry`]), and which each keyspace has ([`Filters`]).

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{CompactionFilter, FilterContext, FilterDecision};
use crate::key::{self, printable};
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, lock};
use crate::{Error, Result};

/// The longest name of a filter.
const MAX_NAME_BYTES: usize = 255;

/// The filters that were registered for an open.
#[derive(Clone, Default)]
pub(crate) struct FilterRegistry(Vec<Arc<dyn CompactionFilter>>);

impl FilterRegistry {
    /// Registers one, in the place of one of its name.
    pub fn add(&mut self, filter: Arc<dyn CompactionFilter>) {
        self.0.retain(|f| f.name() != filter.name());
        self.0.push(filter);
    }

    /// Registers all of `others`.
    pub fn extend(&mut self, others: FilterRegistry) {
        others.0.into_iter().for_each(|f| self.add(f));
    }

    fn find(&self, name: &str) -> Option<Filter> {
        self.0.iter().find(|f| f.name() == name).cloned().map(Filter)
    }

    /// Fails for a filter that this open does not know.
    pub fn check(&self, name: &str) -> Result<()> {
        match name.is_empty() || self.find(name).is_some() {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "the compaction filter '{name}' is not known here: open the store with it \
                 (Options::register_compaction_filter)"
            ))),
        }
    }

    /// Fails for a registered filter without a name that a keyspace can have.
    pub fn validate(&self) -> Result<()> {
        self.0.iter().try_for_each(|f| match f.name() {
            "" => Err(Error::Invalid("a compaction filter is registered without a name".into())),
            name => check_name(name),
        })
    }
}

impl fmt::Debug for FilterRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|f| f.name())).finish()
    }
}

/// Whether this can be what a keyspace has for a filter's name (none: the empty one); an error says why not.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match name.len() {
        0..=MAX_NAME_BYTES => Ok(()),
        n => Err(Error::Invalid(format!(
            "a compaction filter's name has 1 to {MAX_NAME_BYTES} bytes; this one has {n}"
        ))),
    }
}

/// A keyspace's filter.
#[derive(Clone)]
pub(crate) struct Filter(Arc<dyn CompactionFilter>);

impl Filter {
    /// What it says of the value of an internal key.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it has panicked.
    pub fn ask(&self, context: &FilterContext, internal: &[u8], value: &[u8]) -> Result<FilterDecision> {
        let user = key::split(internal).map_or(internal, |(_, user)| user);
        let said = catch_unwind(AssertUnwindSafe(|| self.0.filter(context, user, value)));
        said.map_err(|_| self.failure(internal, "it has panicked"))
    }

    /// What is wrong with what it does with a key.
    pub fn failure(&self, internal: &[u8], what: &str) -> Error {
        let name = self.0.name();
        Error::Invalid(format!(
            "the compaction filter '{name}' fails for key \"{}\": {what}",
            printable(internal)
        ))
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// The filters of keyspaces at some time.
#[derive(Debug, Default)]
pub(crate) struct FilterMap {
    /// Of keyspaces that do not say otherwise.
    store: Option<Filter>,
    own: BTreeMap<u32, Option<Filter>>,
}

impl FilterMap {
    /// The filter of a keyspace, if it has one that this open knows.
    pub fn of(&self, id: u32) -> Option<&Filter> {
        self.own.get(&id).unwrap_or(&self.store).as_ref()
    }

    /// Whether any keyspace has one.
    pub fn any(&self) -> bool {
        self.store.is_some() || self.own.values().any(Option::is_some)
    }

    /// Whether a keyspace between two internal keys (`None`: no end) may have one.
    pub fn reach(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        let id = |key: &[u8]| key::split(key).map(|(id, _)| id);
        let (first, last) = (id(from).unwrap_or(0), to.map_or(Some(u32::MAX), id).unwrap_or(u32::MAX));
        match first >= last {
            true => self.of(first).is_some(),
            false => self.store.is_some() || self.own.range(first..=last).any(|(_, f)| f.is_some()),
        }
    }
}

/// The filters of the keyspaces of an open store, and what they have done.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    now: Mutex<Arc<FilterMap>>,
    /// Entries passed, and of these removed and changed.
    pub seen: AtomicU64,
    pub removed: AtomicU64,
    pub changed: AtomicU64,
    failures: Mutex<(u64, Option<String>)>,
}

impl Filters {
    /// Gives keyspaces these, by the names of their filters (none: the empty one); the one of id 0 is for all that have
    /// no word on it.
    pub fn set<'a>(&self, registry: &FilterRegistry, names: impl Iterator<Item = (u32, &'a str)>) {
        let mut map = FilterMap::default();
        for (id, name) in names {
            match id {
                0 => map.store = registry.find(name),
                _ => drop(map.own.insert(id, registry.find(name))),
            }
        }
        *lock(&self.now) = Arc::new(map);
    }

    /// Those of now, if there are any.
    pub fn now(&self) -> Option<Arc<FilterMap>> {
        let map = Arc::clone(&lock(&self.now));
        map.any().then_some(map)
    }

    /// A filter has failed.
    pub fn note(&self, why: &Error) {
        let mut failures = lock(&self.failures);
        *failures = (failures.0 + 1, Some(why.to_string()));
    }

    /// How many compactions had a filter that failed, and what the last of them said.
    pub fn failures(&self) -> (u64, Option<String>) {
        lock(&self.failures).clone()
    }

    /// How many entries were passed, removed, and changed.
    pub fn counts(&self) -> [u64; 3] {
        [&self.seen, &self.removed, &self.changed].map(|n| n.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Prefix;

    struct Named(&'static str);

    impl CompactionFilter for Named {
        fn name(&self) -> &str {
            self.0
        }
        fn filter(&self, _: &FilterContext, _: &[u8], _: &[u8]) -> FilterDecision {
            FilterDecision::Keep
        }
    }

    #[test]
    fn a_keyspace_has_its_own_filter_or_none_or_that_of_the_store() {
        let mut registry = FilterRegistry::default();
        registry.add(Arc::new(Named("a")));
        registry.add(Arc::new(Named("b")));
        let filters = Filters::default();
        let name = |id: u32| filters.now().and_then(|map| Some(format!("{:?}", map.of(id)?)));
        let key = |id: u32| [Prefix::new(id).as_slice(), b"k"].concat();
        let reach = |from: u32, to: u32| filters.now().is_some_and(|m| m.reach(&key(from), Some(&key(to))));

        filters.set(&registry, [(2, "a"), (3, ""), (4, "unknown")].into_iter());
        assert_eq!([0, 1, 2, 3, 4].map(name), [None, None, Some("a".into()), None, None]);
        assert_eq!(
            [(0, 1), (0, 2), (2, 2), (3, 4), (3, 300)].map(|(a, b)| reach(a, b)),
            [false, true, true, false, false]
        );
        filters.set(&registry, [(0, "b"), (2, "a"), (3, "")].into_iter());
        assert_eq!([0, 2, 3, 9].map(name), [Some("b".into()), Some("a".into()), None, Some("b".into())]);
        assert!(reach(0, 0) && reach(3, 4) && !reach(3, 3));
        filters.set(&registry, [(0, "unknown"), (3, "")].into_iter());
        assert!(filters.now().is_none());
        assert!(registry.check("a").is_ok() && registry.check("").is_ok());
        assert!(registry.check("c").unwrap_err().to_string().contains("register_compaction_filter"));
        assert!(check_name(&"n".repeat(256)).is_err());
    }
}
