//! [`Keyspaces`]: named sets of keys, each under a prefix of its own in the one tree.
//!
//! A keyspace is made and dropped by one durable edit of the manifest. Ids are never used twice, so what is left
//! of a dropped keyspace in logs and tables belongs to nobody; compactions leave it out.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::compaction_filter::registry::{FilterRegistry, Filters};
use crate::key::Prefix;
use crate::manifest::{ManifestState, Remembered, VersionEdit};
use crate::operator::registry::{Operators, Registry};
use crate::options::KeyspaceOptions;
use crate::settings::{SettingsMap, TableSettings};
use crate::stats::KeyspaceSettings;
use crate::sync::{Mutex, lock};
use crate::{Error, Options, Result};

/// The name of the keyspace that [`crate::Db`]'s own calls use.
const DEFAULT: &str = "default";
const MAX_NAME_BYTES: usize = 255;

/// What every handle of a keyspace shares.
#[derive(Debug)]
pub(crate) struct KeyspaceState {
    /// Which open store it belongs to.
    store: u64,
    pub id: u32,
    pub name: String,
    pub prefix: Prefix,
    dropped: AtomicBool,
    /// How many milliseconds a put lives; 0: for ever.
    life: AtomicU64,
}

impl KeyspaceState {
    fn new(store: u64, id: u32, name: &str) -> KeyspaceState {
        let dropped = AtomicBool::new(false);
        KeyspaceState {
            store,
            id,
            name: name.into(),
            prefix: Prefix::new(id),
            dropped,
            life: AtomicU64::new(0),
        }
    }

    /// How many milliseconds a put lives; 0: for ever.
    #[inline]
    pub fn life(&self) -> u64 {
        self.life.load(Relaxed)
    }

    /// Fails once the keyspace is dropped.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.dropped.load(Relaxed) { Err(Error::KeyspaceDropped(self.name.clone())) } else { Ok(()) }
    }

    /// Fails for another store's keyspace.
    pub fn check_store(&self, store: u64) -> Result<()> {
        if self.store == store {
            return Ok(());
        }
        Err(Error::Invalid(format!("keyspace '{}' belongs to another store", self.name)))
    }
}

/// Whether a name can be a keyspace's.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(Error::Invalid(format!(
            "a keyspace's name has 1 to {MAX_NAME_BYTES} bytes; this one has {}",
            name.len()
        )));
    }
    Ok(())
}

/// The keyspaces of an open store.
pub(crate) struct Keyspaces {
    /// Tells open stores of this process apart.
    store: u64,
    default: Arc<KeyspaceState>,
    /// Whether there is one in which puts do not live for ever.
    has_lives: AtomicBool,
    named: Mutex<Named>,
    registry: Registry,
    operators: Arc<Operators>,
    filter_registry: FilterRegistry,
    filters: Arc<Filters>,
}

/// All but the default one.
struct Named {
    live: BTreeMap<String, Arc<KeyspaceState>>,
    /// Ids are below this.
    next_id: u32,
    /// Ids of dropped ones that may have entries left.
    dropped: BTreeSet<u32>,
    /// Settings of their own by id; of the store, all of them, under id 0.
    settings: BTreeMap<u32, Remembered>,
    /// What follows from them.
    map: Arc<SettingsMap>,
    lives: Arc<Lives>,
}

impl Named {
    fn store_settings(&self) -> TableSettings {
        *self.map.of_region(0)
    }

    fn make_map(&mut self) {
        self.map = Arc::new(map(&self.settings, self.live.values().map(|k| k.id)));
    }
}

/// How many milliseconds puts live, by the ids of keyspaces; 0: for ever.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    store: u64,
    own: BTreeMap<u32, u64>,
}

impl Lives {
    fn new(settings: &BTreeMap<u32, Remembered>) -> Lives {
        let life = |s: &Remembered| s.known.time_to_live.map(|life| life.as_millis() as u64);
        Lives {
            store: settings.get(&0).and_then(life).unwrap_or(0),
            own: settings.iter().filter_map(|(id, s)| Some((*id, life(s)?))).collect(),
        }
    }

    /// Of the one with this id.
    pub fn of(&self, id: u32) -> u64 {
        self.own.get(&id).copied().unwrap_or(self.store)
    }

    fn any(&self) -> bool {
        self.store > 0 || self.own.values().any(|life| *life > 0)
    }
}

/// How the tables of these keyspaces are written, if the store remembers `settings`.
fn map(settings: &BTreeMap<u32, Remembered>, live: impl Iterator<Item = u32>) -> SettingsMap {
    let default = TableSettings::of_store(&Options::default());
    let store = settings.get(&0).map_or(default, |s| default.with(&s.known));
    if settings.keys().all(|id| *id == 0) {
        return SettingsMap::uniform(store);
    }
    let live: BTreeSet<u32> = live.collect();
    let own = |id| settings.get(&id).map_or(store, |s| store.with(&s.known));
    SettingsMap::new(store, live.into_iter().map(|id| (id, own(id))))
}

/// The names of merge operators, by the keyspaces that have one of their own; of the store, under id 0.
fn operator_names(settings: &BTreeMap<u32, Remembered>) -> impl Iterator<Item = (u32, &str)> {
    settings.iter().filter_map(|(id, s)| Some((*id, s.known.merge_operator.as_deref()?)))
}

/// The same of compaction filters; empty for those that have said that they have none.
fn filter_names(settings: &BTreeMap<u32, Remembered>) -> impl Iterator<Item = (u32, &str)> {
    settings.iter().filter_map(|(id, s)| Some((*id, s.known.compaction_filter.as_deref()?)))
}

/// How the tables of a store in this state are written.
pub(super) fn settings_map(state: &ManifestState) -> SettingsMap {
    map(&state.settings, state.keyspaces.keys().copied())
}

impl Keyspaces {
    /// As the manifest has them.
    pub fn new(store: u64, state: &ManifestState, options: &Options) -> Keyspaces {
        let live = state.keyspaces.iter();
        let live =
            live.map(|(&id, name)| (name.clone(), Arc::new(KeyspaceState::new(store, id, name)))).collect();
        let operators = Arc::new(Operators::default());
        let keyspaces = Keyspaces {
            registry: options.operators().clone(),
            operators,
            filter_registry: options.filters().clone(),
            filters: Arc::default(),
            store,
            default: Arc::new(KeyspaceState::new(store, 0, DEFAULT)),
            has_lives: AtomicBool::new(false),
            named: Mutex::new(Named {
                live,
                next_id: state.next_keyspace_id.max(1),
                dropped: state.dropped.clone(),
                settings: state.settings.clone(),
                map: Arc::new(settings_map(state)),
                lives: Arc::default(),
            }),
        };
        keyspaces.settings_changed(&mut lock(&keyspaces.named));
        keyspaces
    }

    /// Tells every keyspace how long its puts live.
    fn tell_lives(&self, named: &mut Named) {
        let lives = Lives::new(&named.settings);
        for k in named.live.values().chain([&self.default]) {
            k.life.store(lives.of(k.id), Relaxed);
        }
        self.has_lives.store(lives.any(), Relaxed);
        named.lives = Arc::new(lives);
    }

    /// How long puts live, unless all live for ever.
    #[inline]
    pub fn lives(&self) -> Option<Arc<Lives>> {
        self.has_lives.load(Relaxed).then(|| Arc::clone(&lock(&self.named).lives))
    }

    /// What another process has made, dropped and altered since, in a store that is only read.
    pub fn move_on(&self, state: &ManifestState) {
        let named = &mut *lock(&self.named);
        for (name, k) in std::mem::take(&mut named.live) {
            match state.keyspaces.get(&k.id) {
                Some(_) => drop(named.live.insert(name, k)),
                None => k.dropped.store(true, Relaxed),
            }
        }
        for (&id, name) in &state.keyspaces {
            let new = || Arc::new(KeyspaceState::new(self.store, id, name));
            named.live.entry(name.clone()).or_insert_with(new);
        }
        named.next_id = state.next_keyspace_id.max(1);
        named.dropped = state.dropped.clone();
        named.settings = state.settings.clone();
        self.settings_changed(named);
    }

    /// The merge operators of all, now and as they change.
    pub fn operators(&self) -> &Arc<Operators> {
        &self.operators
    }

    /// The compaction filters of all, now and as they change.
    pub fn filters(&self) -> &Arc<Filters> {
        &self.filters
    }

    /// Fails for code that this open does not know or the keyspace cannot have.
    fn check_code(&self, id: Option<u32>, given: &KeyspaceOptions) -> Result<()> {
        given.compaction_filter.as_deref().map_or(Ok(()), |name| self.filter_registry.check(name))?;
        self.check_operator(id, given)
    }

    /// Fails for a merge operator that this open does not know; with `id`, also if that keyspace has another one:
    /// there may be operands for it.
    fn check_operator(&self, id: Option<u32>, given: &KeyspaceOptions) -> Result<()> {
        let Some(name) = &given.merge_operator else { return Ok(()) };
        self.registry.find(name).code()?;
        match id.and_then(|id| self.options_of(id).merge_operator) {
            Some(has) if has != *name => Err(Error::Invalid(format!(
                "the keyspace has the merge operator '{has}', and keeps it: make another keyspace for '{name}'"
            ))),
            _ => Ok(()),
        }
    }

    /// The identity of the open store.
    pub fn store(&self) -> u64 {
        self.store
    }

    /// The one that [`crate::Db`]'s own calls use.
    pub fn default_one(&self) -> &Arc<KeyspaceState> {
        &self.default
    }

    /// The one of that name, if there is one.
    pub fn get(&self, name: &str) -> Result<Option<Arc<KeyspaceState>>> {
        check_name(name)?;
        if name == DEFAULT {
            return Ok(Some(self.default.clone()));
        }
        Ok(lock(&self.named).live.get(name).cloned())
    }

    /// The names of all but the default one, sorted.
    pub fn names(&self) -> Vec<String> {
        lock(&self.named).live.keys().cloned().collect()
    }

    /// The ids of dropped ones that may have entries left.
    pub fn dropped(&self) -> Vec<u32> {
        lock(&self.named).dropped.iter().copied().collect()
    }

    /// Makes the one of that name, which is not there, once `record` has made the edit durable. The caller holds the
    /// manifest, so that nobody else makes or drops one meanwhile.
    pub fn create(
        &self,
        name: &str,
        options: &KeyspaceOptions,
        record: impl FnOnce(&VersionEdit) -> Result<()>,
    ) -> Result<Arc<KeyspaceState>> {
        self.check_code(None, options)?;
        let id = lock(&self.named).next_id;
        if id == u32::MAX {
            return Err(Error::Invalid("the store has used up all ids of keyspaces".into()));
        }
        let own = (*options != KeyspaceOptions::default()).then(|| (id, Remembered::from(options.clone())));
        let created_keyspaces = vec![(id, name.into())];
        let settings = own.clone().into_iter().collect();
        record(&VersionEdit { created_keyspaces, settings, ..VersionEdit::default() })?;
        let state = Arc::new(KeyspaceState::new(self.store, id, name));
        let mut named = lock(&self.named);
        assert_eq!(named.next_id, id, "an id is given out once");
        named.next_id = id + 1;
        named.live.insert(name.into(), state.clone());
        named.settings.extend(own);
        self.settings_changed(&mut named);
        Ok(state)
    }

    /// How tables are written from now on.
    pub fn settings(&self) -> Arc<SettingsMap> {
        lock(&self.named).map.clone()
    }

    /// Those of the store.
    pub fn store_settings(&self) -> TableSettings {
        lock(&self.named).store_settings()
    }

    /// The settings in force for one.
    pub fn options_of(&self, id: u32) -> KeyspaceOptions {
        let named = lock(&self.named);
        let store = named.store_settings();
        let own = named.settings.get(&id).map(|s| &s.known);
        let mut all = own.map_or(store, |own| store.with(own)).to_options();
        let operator_of = |id: u32| named.settings.get(&id).and_then(|s| s.known.merge_operator.clone());
        all.merge_operator = operator_of(id).or_else(|| operator_of(0));
        let filter_of = |id: u32| named.settings.get(&id).and_then(|s| s.known.compaction_filter.clone());
        all.compaction_filter = filter_of(id).or_else(|| filter_of(0)).filter(|name| !name.is_empty());
        all.time_to_live = Some(Duration::from_millis(named.lives.of(id)));
        all
    }

    /// Those of all, the default one first.
    pub fn all_settings(&self) -> Vec<KeyspaceSettings> {
        let mut all: Vec<KeyspaceSettings> = vec![self.settings_of(&self.default)];
        let live: Vec<Arc<KeyspaceState>> = lock(&self.named).live.values().cloned().collect();
        all.extend(live.iter().map(|k| self.settings_of(k)));
        all
    }

    fn settings_of(&self, k: &KeyspaceState) -> KeyspaceSettings {
        KeyspaceSettings { keyspace: k.name.clone(), options: self.options_of(k.id) }
    }

    /// Whether all that is given here is its own already.
    pub fn has(&self, id: u32, given: &KeyspaceOptions) -> bool {
        match lock(&self.named).settings.get(&id) {
            None => *given == KeyspaceOptions::default(),
            Some(own) => own.with(given) == *own,
        }
    }

    /// Changes settings of one once `record` has made the edit durable. The caller holds the manifest.
    pub fn alter(
        &self,
        id: u32,
        given: &KeyspaceOptions,
        record: impl FnOnce(&VersionEdit) -> Result<()>,
    ) -> Result<()> {
        self.check_code(Some(id), given)?;
        let own = lock(&self.named).settings.get(&id).cloned().unwrap_or_default().with(given);
        record(&VersionEdit { settings: vec![(id, own.clone())], ..VersionEdit::default() })?;
        let mut named = lock(&self.named);
        named.settings.insert(id, own);
        self.settings_changed(&mut named);
        Ok(())
    }

    /// Drops the one of that name once `record` has made the edit durable; false if there is none. The caller holds
    /// the manifest.
    pub fn drop_named(&self, name: &str, record: impl FnOnce(&VersionEdit) -> Result<()>) -> Result<bool> {
        let Some(state) = lock(&self.named).live.get(name).cloned() else { return Ok(false) };
        record(&VersionEdit { dropped_keyspaces: vec![state.id], ..VersionEdit::default() })?;
        state.dropped.store(true, Relaxed);
        let mut named = lock(&self.named);
        named.live.remove(name);
        named.dropped.insert(state.id);
        named.settings.remove(&state.id);
        self.settings_changed(&mut named);
        Ok(true)
    }

    fn settings_changed(&self, named: &mut Named) {
        named.make_map();
        self.tell_lives(named);
        self.operators.set(&self.registry, operator_names(&named.settings));
        self.filters.set(&self.filter_registry, filter_names(&named.settings));
    }

    /// Fails for the default one, which cannot be dropped, and for what cannot be a name.
    pub fn check_droppable(&self, name: &str) -> Result<()> {
        check_name(name)?;
        if name == DEFAULT {
            return Err(Error::Invalid("the default keyspace cannot be dropped".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_255_bytes() {
        assert!(check_name("").is_err());
        assert!(check_name("a").is_ok() && check_name(&"é".repeat(127)).is_ok());
        assert!(check_name(&"é".repeat(128)).is_err());
    }
}
