//! A map in order of revision, across its scopes, for the change stream. Only the last state of an
//! entry is stored (A7).

use std::collections::btree_set::Range;
use std::sync::Arc;

use super::{Body, Published, Scope};

/// A changed or removed entry, with the revision of its last change.
#[derive(Debug, Clone)]
pub struct Changed {
    pub revision: u64,
    pub key: Arc<str>,
    pub body: Body,
    /// Owner of a removed entry. `None` if it is not known.
    pub owner: Option<Arc<str>>,
}

/// The changes of one scope after a revision, oldest first.
pub(crate) struct ScopeChanges<'a> {
    scope: &'a Scope,
    remaining: Range<'a, (u64, Arc<str>)>,
}

impl Iterator for ScopeChanges<'_> {
    type Item = Changed;

    fn next(&mut self) -> Option<Changed> {
        let (revision, key) = self.remaining.next()?;
        let entry = self.scope.entries.get(key);
        let body = entry.and_then(|entry| entry.body.clone());
        Some(Changed {
            revision: *revision,
            key: key.clone(),
            body,
            owner: self.scope.owners.get(key).cloned(),
        })
    }
}

impl Published {
    /// Returns the changes after `revision`, of one scope or of all. Each scope has its own order.
    pub(crate) fn changes_after<'a>(
        &'a self,
        scope: Option<&str>,
        revision: u64,
    ) -> Vec<ScopeChanges<'a>> {
        let scopes: Vec<&Scope> = match scope {
            Some(scope) => self.scopes.get(scope).into_iter().collect(),
            None => self.scopes.values().collect(),
        };
        let start = (revision.saturating_add(1), Arc::<str>::from(""));
        let changes = scopes.into_iter().map(|scope| ScopeChanges {
            scope,
            remaining: scope.by_revision.range(start.clone()..),
        });
        changes.collect()
    }

    /// Returns the revision of the last change of an existing entry.
    pub(crate) fn revision_of(&self, scope: &str, key: &str) -> Option<u64> {
        let entry = self.scopes.get(scope)?.entries.get(key)?;
        entry.body.is_some().then_some(entry.revision)
    }

    /// Stores the owner of an entry that was just removed.
    pub(crate) fn set_owner(&mut self, scope: &str, key: &str, owner: &str) {
        let Some(scope) = self.scopes.get_mut(scope) else {
            return;
        };
        if let Some((shared_key, entry)) = scope.entries.get_key_value(key)
            && entry.body.is_none()
        {
            scope.owners.insert(shared_key.clone(), owner.into());
        }
    }
}
