//! A map in the order in which it changed, across its scopes: for readers of the change stream
//! (A7), who are told where they are after every piece. What an entry was in between is not kept;
//! the last it was always is.

use std::collections::btree_set::Range;
use std::sync::Arc;

use super::{Body, Published, Scope};

/// One entry that changed, or went, and when it did so last.
#[derive(Debug, Clone)]
pub struct Changed {
    pub revision: u64,
    pub key: Arc<str>,
    pub body: Body,
    /// Of an entry that went: whose it was, where that is known.
    pub owner: Option<Arc<str>>,
}

/// The changes of one scope after a revision, oldest first.
pub(crate) struct ScopeChanges<'a> {
    scope: &'a Scope,
    rest: Range<'a, (u64, Arc<str>)>,
}

impl Iterator for ScopeChanges<'_> {
    type Item = Changed;

    fn next(&mut self) -> Option<Changed> {
        let (revision, key) = self.rest.next()?;
        let body = self.scope.entries.get(key).and_then(|(_, it)| it.clone());
        Some(Changed {
            revision: *revision,
            key: key.clone(),
            body,
            owner: self.scope.owners.get(key).cloned(),
        })
    }
}

impl Published {
    /// What changed after `revision`, in one scope or in all, each scope in its own order.
    pub(crate) fn changes_after<'a>(
        &'a self,
        scope: Option<&str>,
        revision: u64,
    ) -> Vec<ScopeChanges<'a>> {
        let scopes: Vec<&Scope> = match scope {
            Some(one) => self.scopes.get(one).into_iter().collect(),
            None => self.scopes.values().collect(),
        };
        let begin = (revision.saturating_add(1), Arc::<str>::from(""));
        let changes = scopes.into_iter().map(|scope| ScopeChanges {
            scope,
            rest: scope.by_revision.range(begin.clone()..),
        });
        changes.collect()
    }

    /// The revision at which an entry that is there changed last.
    pub(crate) fn revision_of(&self, scope: &str, key: &str) -> Option<u64> {
        let (revision, body) = self.scopes.get(scope)?.entries.get(key)?;
        body.as_ref().map(|_| *revision)
    }

    /// Notes whose an entry was that has just been removed.
    pub(crate) fn set_owner(&mut self, scope: &str, key: &str, owner: &str) {
        let Some(scope) = self.scopes.get_mut(scope) else {
            return;
        };
        if let Some((kept, (_, None))) = scope.entries.get_key_value(key) {
            scope.owners.insert(kept.clone(), owner.into());
        }
    }
}
