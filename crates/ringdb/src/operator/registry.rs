//! Which operators an open knows ([`Registry`]), and which each keyspace has ([`Operators`]).

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{MergeOperator, built_in};
use crate::key::{self, MAX_VALUE_BYTES, printable};
use crate::sync::{Mutex, lock};
use crate::{Error, Result};

/// The longest name of an operator.
const MAX_NAME_BYTES: usize = 255;

/// The operators that were registered for an open.
#[derive(Clone, Default)]
pub(crate) struct Registry(Vec<Arc<dyn MergeOperator>>);

impl Registry {
    /// Registers one, in the place of one of its name.
    pub fn add(&mut self, operator: Arc<dyn MergeOperator>) {
        self.0.retain(|o| o.name() != operator.name());
        self.0.push(operator);
    }

    /// Registers all of `others`.
    pub fn extend(&mut self, others: Registry) {
        others.0.into_iter().for_each(|o| self.add(o));
    }

    /// The one of that name: a registered one, or a built-in one.
    pub fn find(&self, name: &str) -> Operator {
        let own = self.0.iter().find(|o| o.name() == name).cloned();
        Operator { name: name.into(), code: own.or_else(|| built_in::named(name).map(Arc::from)) }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|o| o.name())).finish()
    }
}

/// Whether this can be an operator's name; an error says why not.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match name.len() {
        1..=MAX_NAME_BYTES => Ok(()),
        n => Err(Error::Invalid(format!(
            "a merge operator's name has 1 to {MAX_NAME_BYTES} bytes; this one has {n}"
        ))),
    }
}

/// A keyspace's operator, which this open may know or not.
#[derive(Clone)]
pub(crate) struct Operator {
    name: Arc<str>,
    code: Option<Arc<dyn MergeOperator>>,
}

impl Operator {
    /// What does it.
    ///
    /// # Errors
    /// [`Error::Invalid`], with what to register, if this open does not know it.
    pub fn code(&self) -> Result<&dyn MergeOperator> {
        self.code.as_deref().ok_or_else(|| {
            let name = &self.name;
            Error::Invalid(format!(
                "the merge operator '{name}' is not known here: open the store with it \
                 (Options::register_merge_operator)"
            ))
        })
    }

    /// What [`MergeOperator::merge`] makes of a key, the operands oldest first.
    pub fn merge(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        let code = self.code()?;
        let made = catch_unwind(AssertUnwindSafe(|| code.merge(user(key), value, operands)));
        let made = made.unwrap_or_else(|_| Err("it has panicked".into()));
        let made = made.and_then(|value| match value.len() {
            0..=MAX_VALUE_BYTES => Ok(value),
            n => Err(format!("{n} bytes are too long for a value: at most {MAX_VALUE_BYTES} (1 GiB)")),
        });
        made.map_err(|why| {
            Error::Invalid(format!(
                "the merge operator '{}' fails for key \"{}\": {why}",
                self.name,
                printable(key)
            ))
        })
    }

    /// What [`MergeOperator::partial_merge`] makes of operands, oldest first.
    pub fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let code = self.code.as_deref()?;
        let made = catch_unwind(AssertUnwindSafe(|| code.partial_merge(user(key), operands))).ok()??;
        (made.len() <= MAX_VALUE_BYTES).then_some(made)
    }

    /// Fails for what can be no operand.
    pub fn check(&self, operand: &[u8]) -> Result<()> {
        self.code()?.check(operand).map_err(|why| {
            Error::Invalid(format!("the merge operator '{}' refuses an operand: {why}", self.name))
        })
    }
}

fn user(key: &[u8]) -> &[u8] {
    key::split(key).map_or(key, |(_, user)| user)
}

/// The operators of the keyspaces of an open store.
#[derive(Default)]
pub(crate) struct Operators {
    by_id: Mutex<Arc<ById>>,
}

#[derive(Default)]
struct ById {
    /// Of keyspaces that have none of their own.
    store: Option<Operator>,
    own: BTreeMap<u32, Operator>,
}

impl Operators {
    /// Gives keyspaces these, by the names of their operators; the one of id 0 is for all that have none of their own.
    pub fn set<'a>(&self, registry: &Registry, names: impl Iterator<Item = (u32, &'a str)>) {
        let mut by_id = ById::default();
        for (id, name) in names {
            match id {
                0 => by_id.store = Some(registry.find(name)),
                _ => drop(by_id.own.insert(id, registry.find(name))),
            }
        }
        *lock(&self.by_id) = Arc::new(by_id);
    }

    /// The operator of a keyspace, if it has one.
    pub fn of(&self, id: u32) -> Option<Operator> {
        let by_id = Arc::clone(&lock(&self.by_id));
        by_id.own.get(&id).or(by_id.store.as_ref()).cloned()
    }

    /// The operator for an internal key, if it has one.
    pub fn of_key(&self, internal: &[u8]) -> Option<Operator> {
        self.of(key::split(internal).map_or(0, |(id, _)| id))
    }

    /// Fails for what cannot be merged into a key.
    pub fn check(&self, internal: &[u8], operand: &[u8]) -> Result<()> {
        self.of_key(internal).ok_or_else(no_operator)?.check(operand)
    }
}

/// A merge where there is no operator.
pub(super) fn no_operator() -> Error {
    Error::Invalid(
        "the keyspace has no merge operator: give it one (KeyspaceOptions::with_merge_operator) before a merge".into(),
    )
}
