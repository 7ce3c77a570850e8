//! `GET /v1/changes`: the changes of a service for external programs (A7).
//!
//! The changes are read from the publications, so they are states and not a log. A reader that is
//! behind gets the last state of each object, in order of revision. A commit is never split.
//! Intermediate states may be missing. There are two forms of the response: server-sent events, and
//! a long poll with `wait`. A [`Feed`] lists the publications that a service shows, and their kinds
//! of objects.

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

/// The publications that a service shows as changes.
#[derive(Debug, Clone, Copy)]
pub struct Feed {
    pub service: &'static str,
    pub kinds: &'static [Kind],
    /// Roles that may use the route, as the row for `follow_changes`.
    pub roles: RouteRoles,
}

/// One kind of objects.
#[derive(Debug)]
pub struct Kind {
    /// Name of the kind in requests and responses.
    pub name: &'static str,
    pub publication: &'static str,
    /// Prefix of the keys of this kind, if the publication contains several kinds.
    pub prefix: &'static str,
    pub visible_to: Visibility,
    /// Returns the visible form of an entry. `None` if the entry cannot be parsed.
    pub show: fn(&Arc<RawValue>) -> Option<Arc<RawValue>>,
}

/// Users who see an object. Operators and viewers see all objects (S12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// The user named by the scope of the entry.
    ScopeOwner,
    /// The user named by `user` of the entry.
    EntryUser,
    /// All callers of the route.
    Everyone,
    /// Operators and viewers only.
    Operators,
}

/// A changed or removed object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectChange {
    /// Revision of the service at which the object changed.
    pub revision: u64,
    /// Kind of the object, one of `kinds`.
    pub kind: String,
    pub id: String,
    /// True if the object does not exist any more.
    pub removed: bool,
    /// The object in the form of its own route; absent once it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<serde_json::Value>,
}

/// Changes in order, and the position after them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectChanges {
    pub changes: Vec<ObjectChange>,
    /// All changes up to this revision are in this answer or in earlier ones.
    pub revision: u64,
    /// The next `since`. It also names the history that the revision belongs to.
    pub cursor: String,
}

impl Kind {
    /// Returns whether entries with this key are objects of this kind.
    fn covers(&self, publication: &str, key: &str) -> bool {
        self.publication == publication && key.starts_with(self.prefix)
    }

    /// Returns whether a caller with access only to their own objects sees this change. Returns
    /// `None` if the owner is no longer known.
    fn is_visible_to(&self, user: &str, change: &Changed) -> Option<bool> {
        match self.visible_to {
            // The reader reads only the scope of the user.
            Visibility::ScopeOwner | Visibility::Everyone => Some(true),
            Visibility::Operators => Some(false),
            Visibility::EntryUser => match &change.body {
                Some(body) => Some(parse_user(body).as_deref() == Some(user)),
                None => change.owner.as_deref().map(|owner| owner == user),
            },
        }
    }
}

/// Returns the route for the router of the service.
pub fn routes(publisher: &Arc<Publisher>, feed: Feed) -> OpenApiRouter {
    for kind in feed.kinds {
        if kind.visible_to == Visibility::EntryUser {
            publisher.track_owner(kind.publication, parse_user);
        }
    }
    route::router(feed, Some(Arc::clone(publisher)))
}

/// Returns the route for the description of the API only.
pub fn openapi_routes(feed: Feed) -> OpenApiRouter {
    route::router(feed, None)
}

/// Shows an entry unchanged.
pub fn show_unchanged(body: &Arc<RawValue>) -> Option<Arc<RawValue>> {
    Some(Arc::clone(body))
}

/// Shows an entry as the view `V`.
pub fn as_view<E: DeserializeOwned, V: for<'a> From<&'a E> + Serialize>(
    body: &Arc<RawValue>,
) -> Option<Arc<RawValue>> {
    let entry: E = serde_json::from_str(body.get()).ok()?;
    let view = serde_json::value::to_raw_value(&V::from(&entry)).ok()?;
    Some(view.into())
}

fn parse_user(body: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct UserField {
        user: String,
    }
    let field: UserField = serde_json::from_str(body.get()).ok()?;
    Some(field.user)
}

/// Returns whether the caller sees all objects.
fn sees_everything(caller: &Caller) -> bool {
    caller.has(&Scope::Operator) || caller.has(&Scope::Viewer)
}

/// Creates the problem for a position from which no reader can continue.
fn gone_problem(detail: String, oldest: u64) -> Problem {
    Problem::new(Code::Gone, detail)
        .with("oldest_revision", oldest)
        .at(
            "/query/since",
            "read the lists, and go on from their revision",
        )
}
