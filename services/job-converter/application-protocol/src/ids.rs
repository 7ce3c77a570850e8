//! Ids chosen by submitters. They are valid in a path segment and in a header.

use std::fmt;
use std::sync::Arc;

use hayward_vocabulary::{BadName, NodeName};
use serde::{Deserialize, Serialize};

/// Checks an id against the rule for all chosen ids.
fn check_name(kind: &'static str, name: String) -> Result<Arc<str>, BadName> {
    match NodeName::new(name) {
        Ok(name) => Ok(name.as_str().into()),
        Err(error) => Err(BadName { kind, ..error }),
    }
}

macro_rules! chosen_name {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// # Errors
            /// Fails if the text is empty, too long, or has an invalid character.
            pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
                check_name($kind, text.into()).map(Self)
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
        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

chosen_name!(
    /// Application id, unique in its partition.
    AppId,
    "application"
);
chosen_name!(
    /// Task id, unique in its application. It is also the key of the task's ask and allocation.
    TaskId,
    "task"
);
chosen_name!(
    /// Task group name, unique in its application.
    GroupName,
    "task group"
);

impl TaskId {
    /// Returns true if the id is reserved for placeholders, including those of a repair.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with("tg-") || self.0.starts_with("tr-")
    }
}

/// Creates the id of a placeholder, at most 63 characters long. Numbers count through the whole
/// application, so that shortened group names do not collide.
pub(crate) fn placeholder_id(
    app: &AppId,
    group: &GroupName,
    number: u32,
) -> Result<TaskId, BadName> {
    let prefix = |text: &str, limit: usize| text.chars().take(limit).collect::<String>();
    let (app, group) = (prefix(app.as_str(), 28), prefix(group.as_str(), 20));
    TaskId::new(format!("tg-{app}-{group}-{number:010}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholder_names_are_unique_within_63_characters() {
        let app = AppId::new("a".repeat(100)).unwrap();
        let group = |end: &str| GroupName::new("g".repeat(30) + end).unwrap();
        let first = placeholder_id(&app, &group("1"), 1).unwrap();
        let second = placeholder_id(&app, &group("2"), 2).unwrap();
        assert_ne!(first, second);
        assert_eq!(first.as_str().len(), 63);
    }

    #[test]
    fn a_bad_name_states_its_kind() {
        let error = AppId::new("a/b").unwrap_err();
        assert!(
            error.to_string().starts_with("application \"a/b\""),
            "{error}"
        );
    }
}
