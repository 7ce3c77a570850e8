//! Removes names of users that the reader may not see (S12).

use hayward_rm_scheduler_api::policy::{Class, Policy};

use crate::inheritance::Ancestry;

/// Removes the names of users that are not visible to the reader, and the classes that only such
/// users may use. All queues are removed, because their access lists and limits contain names.
/// `/v1/queues` has the queue tree.
#[must_use]
pub fn without_names(policy: &Policy, is_visible: impl Fn(&str) -> bool) -> Policy {
    let mut redacted = policy.clone();
    redacted.users.retain(|user, _| is_visible(user));
    // An empty list allows every user, so a list that becomes empty must not remain.
    redacted.classes.retain(|name, _| {
        let users =
            Ancestry::new(policy, name).map(|ancestry| ancestry.find(|class| class.users.as_ref()));
        let users = users.ok().flatten();
        users.is_none_or(|users| users.is_empty() || users.iter().any(|user| is_visible(user)))
    });
    for Class { users, .. } in redacted.classes.values_mut() {
        if let Some(users) = users {
            users.retain(|user| is_visible(user));
        }
    }
    for pool in redacted.pools.values_mut() {
        pool.queues = None;
    }
    redacted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_for_other_users_only_is_removed() {
        let mut policy = Policy::default();
        let mut add = |name: &str, parent: Option<&str>, users: Option<&[&str]>| {
            let users = users.map(|users| users.iter().map(|user| (*user).to_owned()).collect());
            let parent = parent.map(str::to_owned);
            let class = Class {
                parent,
                users,
                ..Class::default()
            };
            policy.classes.insert(name.to_owned(), class);
        };
        add("theirs", None, Some(&["ben"]));
        add("below", Some("theirs"), None);
        add("both", Some("theirs"), Some(&["ann", "ben"]));
        add("open", Some("theirs"), Some(&[]));
        let redacted = without_names(&policy, |user| user == "ann");
        let users_of = |name: &str| redacted.classes.get(name).map(|class| class.users.clone());
        assert_eq!((users_of("theirs"), users_of("below")), (None, None));
        assert_eq!(users_of("both"), Some(Some(vec!["ann".to_owned()])));
        assert_eq!(users_of("open"), Some(Some(Vec::new())));
        assert_eq!(users_of("normal"), Some(None));
    }
}
