//! Identities. Each is a checked string with a typed prefix and a UUIDv7, except for node and user
//! names, which people choose. An id is never reused. Ids are shared and not copied (A2).

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A name that contains invalid characters or is too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{kind} {name:?} must have 1 to {limit} characters, start with a letter or digit, and use \
     only letters, digits, '.', '_' and '-'"
)]
pub struct BadName {
    pub kind: &'static str,
    pub name: String,
    pub limit: usize,
}

/// Maximum length of a name of a node or user, in bytes.
pub const NAME_LIMIT: usize = 128;

fn check_name(kind: &'static str, name: String) -> Result<String, BadName> {
    let is_valid = !name.is_empty()
        && name.len() <= NAME_LIMIT
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if is_valid {
        Ok(name)
    } else {
        Err(BadName {
            kind,
            name,
            limit: NAME_LIMIT,
        })
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
        )]
        #[serde(try_from = "String", into = "String")]
        #[schema(
            value_type = String,
            min_length = 1,
            max_length = 128,
            pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"
        )]
        pub struct $name(Arc<str>);

        impl $name {
            /// # Errors
            /// If the text is empty or too long, or has an invalid character.
            pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
                check_name($kind, text.into()).map(|text| Self(text.into()))
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                Self::new(text)
            }
        }
        impl std::str::FromStr for $name {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                Self::new(text)
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id!(
    /// The name of a node, chosen when its agent enrols.
    NodeName,
    "node"
);
text_id!(
    /// The person or account whose share is charged. It comes from the token (D11).
    UserName,
    "user"
);
text_id!(
    /// One piece of work: `job_…`, `rsv_…`, `svc_….N` for instance N of a service and `svc_….N-R`
    /// for its standby R, or `wp_….N` for worker N of a worker pool.
    WorkId,
    "work"
);
text_id!(
    /// Quanta of one node bound to one slot of a piece of work (I1). The container that runs in it
    /// has the same id, so that the two can never be paired wrongly.
    AllocationId,
    "allocation"
);

/// Kind of the work that an id belongs to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// Elastic: many tasks, any number of processes.
    Job,
    /// One instance of a program that runs until its service is withdrawn.
    Service,
    /// A node held for a user. Hayward starts nothing on it.
    Reservation,
}

impl WorkKind {
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Service => "svc",
            Self::Reservation => "rsv",
        }
    }
}

impl WorkId {
    pub fn from_uuid(kind: WorkKind, uuid: Uuid) -> Self {
        Self(format!("{}_{}", kind.prefix(), uuid.simple()).into())
    }

    /// The id of instance `number` of a service. An instance is its own piece of work.
    #[must_use]
    pub fn instance(&self, number: u32) -> Self {
        Self(format!("{}.{number}", self.0).into())
    }

    /// The id of a standby for instance `number`. A standby is its own piece of work too.
    #[must_use]
    pub fn standby(&self, number: u32, replica: u32) -> Self {
        Self(format!("{}.{number}-{replica}", self.0).into())
    }

    /// The id of the service of an instance, or of the worker pool of a worker. Other ids are
    /// returned unchanged.
    #[must_use]
    pub fn parent(&self) -> Self {
        Self(self.0.split('.').next().unwrap_or(&self.0).into())
    }
}

impl AllocationId {
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(format!("alc_{}", uuid.simple()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_characters_for_paths_or_headers_are_refused() {
        for bad in ["", "../etc", "a b", "a\n", ".hidden", "ä", "a/b"] {
            assert!(NodeName::new(bad).is_err(), "{bad:?}");
        }
        assert!(NodeName::new("node-1.rack_2").is_ok());
        assert!(NodeName::new("n".repeat(NAME_LIMIT + 1)).is_err());
    }

    #[test]
    fn the_id_of_an_instance_contains_its_service() {
        let service = WorkId::from_uuid(WorkKind::Service, Uuid::nil());
        assert_eq!(service.instance(3).parent(), service);
        assert_eq!(service.standby(3, 0).parent(), service);
        assert_eq!(service.parent(), service);
    }

    #[test]
    fn deserialization_checks_names() {
        assert!(serde_json::from_str::<NodeName>("\"a/b\"").is_err());
    }
}
