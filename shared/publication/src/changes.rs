//! `GET /v1/changes`: what changes in a service, as it changes, for programs of others (A7, W14).
//!
//! It is read from the publications: state, not a log. Whoever is behind is told the last that each
//! object was, in the order of the revisions, a commit whole or not at all; what an object was in
//! between may be missing. Two forms say the same: server-sent events, and with `wait` a long poll.
//! A [`Feed`] says which publications of a service are shown as which kinds of objects, and how.

mod reader;
mod route;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hayward_service::Caller;
use hayward_service::auth::Scope;
use hayward_service::http::authorization::RouteRoles;
use hayward_service::http::problem::{Code, Problem};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use crate::Publisher;
use crate::published::Changed;

/// What a service shows of its publications.
#[derive(Debug, Clone, Copy)]
pub struct Feed {
    pub service: &'static str,
    pub kinds: &'static [Kind],
    /// Who may use the route: a row for `follow_changes`.
    pub admitted: RouteRoles,
}

/// Objects of one kind.
#[derive(Debug)]
pub struct Kind {
    /// As it is asked for, and told.
    pub name: &'static str,
    pub publication: &'static str,
    /// How the keys of this kind begin, where a publication holds several.
    pub prefix: &'static str,
    pub visible_to: Visibility,
    /// What people may see of an entry. None where it does not read as one.
    pub show: fn(&Arc<RawValue>) -> Option<Arc<RawValue>>,
}

/// Who is told of an object (S12). Operators and viewers are told of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// The user whom the scope of its entry names.
    ScopeOwner,
    /// The user whom its entry names as `user`.
    EntryUser,
    /// Everybody who may use the route.
    Everyone,
    /// Nobody but operators and viewers.
    Operators,
}

/// One object that changed or went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectChange {
    /// Revision of the service at which it did.
    pub revision: u64,
    /// What kind of object, as `kinds` names it.
    #[serde(rename = "kind")]
    pub of: String,
    pub id: String,
    /// It is there no more.
    pub removed: bool,
    /// The object as it is since, as its own route shows it; absent once it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<serde_json::Value>,
}

/// Changes in order, and where to go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectChanges {
    pub changes: Vec<ObjectChange>,
    /// Everything up to this revision has been told.
    pub revision: u64,
    /// The next `since`: it also names the history that the revision belongs to.
    pub cursor: String,
}

impl Kind {
    fn covers(&self, publication: &str, key: &str) -> bool {
        self.publication == publication && key.starts_with(self.prefix)
    }

    /// Whether somebody who is told of their own alone is told of this change; `None` where nobody
    /// can say any more whose it was.
    fn is_visible_to(&self, user: &str, change: &Changed) -> Option<bool> {
        match self.visible_to {
            // Only their scope is read.
            Visibility::ScopeOwner | Visibility::Everyone => Some(true),
            Visibility::Operators => Some(false),
            Visibility::EntryUser => match &change.body {
                Some(body) => Some(user_of(body).as_deref() == Some(user)),
                None => change.owner.as_deref().map(|owner| owner == user),
            },
        }
    }
}

/// The route, to be merged into those of the service.
pub fn routes(publisher: &Arc<Publisher>, feed: Feed) -> OpenApiRouter {
    for kind in feed.kinds {
        if kind.visible_to == Visibility::EntryUser {
            publisher.track_owner(kind.publication, user_of);
        }
    }
    route::router(feed, Some(Arc::clone(publisher)))
}

/// One that is only described.
pub fn described(feed: Feed) -> OpenApiRouter {
    route::router(feed, None)
}

/// For entries that people may see as they are.
pub fn unchanged(body: &Arc<RawValue>) -> Option<Arc<RawValue>> {
    Some(Arc::clone(body))
}

/// For entries that people see as a view of them.
pub fn as_view<E: DeserializeOwned, V: for<'a> From<&'a E> + Serialize>(
    body: &Arc<RawValue>,
) -> Option<Arc<RawValue>> {
    let entry: E = serde_json::from_str(body.get()).ok()?;
    let shown = serde_json::value::to_raw_value(&V::from(&entry)).ok()?;
    Some(shown.into())
}

fn user_of(body: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        user: String,
    }
    let named: Named = serde_json::from_str(body.get()).ok()?;
    Some(named.user)
}

/// Told of everything, not of their own alone.
fn sees_everything(caller: &Caller) -> bool {
    caller.has(&Scope::Operator) || caller.has(&Scope::Viewer)
}

/// A position that cannot be gone on from.
fn gone(detail: String, oldest: u64) -> Problem {
    Problem::new(Code::Gone, detail)
        .with("oldest_revision", oldest)
        .at(
            "/query/since",
            "read the lists, and go on from their revision",
        )
}
