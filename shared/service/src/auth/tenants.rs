//! Tenants: a file of the keys directory, with a tenant and a user per line (S12).
//!
//! A user is in at most one tenant. A user without a tenant shares nothing with other users.
//! Tenants are not in tokens, because a service also needs the tenants of other users.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use hayward_vocabulary::UserName;

use crate::runtime::file_watch::Watched;

/// A tenant with its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub name: UserName,
    members: BTreeSet<String>,
}

impl Tenant {
    pub fn new(name: UserName, members: impl IntoIterator<Item = String>) -> Self {
        let members = members.into_iter().collect();
        Self { name, members }
    }

    /// Returns whether the tenant has exactly this name as a member (S5).
    pub fn has(&self, user: &str) -> bool {
        self.members.contains(user)
    }
}

type TenantsByUser = HashMap<String, Arc<Tenant>>;

/// The tenants of all users. The file is read again when it changes. `None` without a file.
pub(super) struct Tenants(Option<Watched<TenantsByUser>>);

impl Tenants {
    pub(super) fn none() -> Self {
        Self(None)
    }

    pub(super) fn open(path: PathBuf) -> anyhow::Result<Self> {
        Ok(Self(Some(Watched::open(path, |path| {
            Ok(index_by_user(&read(path)?))
        })?)))
    }

    pub(super) fn tenant_of(&self, user: &str) -> Option<Arc<Tenant>> {
        self.0.as_ref()?.get().get(user).cloned()
    }
}

fn index_by_user(tenant_by_user: &BTreeMap<String, UserName>) -> TenantsByUser {
    let mut members = BTreeMap::<&UserName, Vec<String>>::new();
    for (user, tenant) in tenant_by_user {
        members.entry(tenant).or_default().push(user.clone());
    }
    let mut by_user = TenantsByUser::new();
    for (tenant, users) in members {
        let shared = Arc::new(Tenant::new(tenant.clone(), users.iter().cloned()));
        by_user.extend(users.into_iter().map(|user| (user, Arc::clone(&shared))));
    }
    by_user
}

/// Returns the tenant of each user. An invalid line makes the whole file invalid, because skipping
/// the line could remove a user from a tenant.
pub(super) fn read(path: &Path) -> anyhow::Result<BTreeMap<String, UserName>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
    };
    let mut tenant_by_user = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let location = || format!("line {} of {}", index + 1, path.display());
        let mut fields = line.split_whitespace();
        let (Some(tenant), user, None) = (fields.next(), fields.next(), fields.next()) else {
            // The line is empty, or has more than two fields.
            ensure!(
                line.trim().is_empty(),
                "{} has more than a tenant and a user",
                location()
            );
            continue;
        };
        let user = user.with_context(|| format!("{} names no user", location()))?;
        let tenant: UserName = tenant.parse().with_context(location)?;
        let user = UserName::new(user).with_context(location)?;
        let previous = tenant_by_user.insert(user.to_string(), tenant);
        ensure!(
            previous.is_none(),
            "{} has two lines for {user}",
            path.display()
        );
    }
    Ok(tenant_by_user)
}

/// Returns the text of the file, with its lines in order.
pub(super) fn render(tenant_by_user: &BTreeMap<String, UserName>) -> String {
    let mut lines: Vec<_> = tenant_by_user
        .iter()
        .map(|(user, tenant)| format!("{tenant} {user}\n"))
        .collect();
    lines.sort_unstable();
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> anyhow::Result<BTreeMap<String, UserName>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenants");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn a_tenant_has_the_users_of_its_lines_and_a_user_in_two_tenants_is_an_error() {
        let lines = read_text("acme ada\n\n acme  ann \nglobex ben\n").unwrap();
        let by_user = index_by_user(&lines);
        assert!(by_user["ada"].has("ann") && by_user["ann"].has("ada"));
        assert!(
            !by_user["ada"].has("ben") && !by_user["ada"].has("an"),
            "names are compared exactly (S5)"
        );
        assert!(
            !by_user.contains_key("cy"),
            "an absent user has no tenant (S4)"
        );
        assert_eq!(render(&lines), "acme ada\nacme ann\nglobex ben\n");
        for bad in ["acme ada\nglobex ada", "acme", "acme ada ann", "acme ../x"] {
            assert!(read_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_later_file_is_read_and_a_broken_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenants");
        let tenants = Tenants::open(path.clone()).unwrap();
        assert_eq!(tenants.tenant_of("ada"), None);
        for (text, name) in [
            ("acme ada", "acme"),
            ("acme", "acme"),
            ("globex ada", "globex"),
        ] {
            std::fs::write(&path, text).unwrap();
            tenants.0.as_ref().unwrap().check_now();
            assert_eq!(
                tenants.tenant_of("ada").unwrap().name.as_str(),
                name,
                "{text}"
            );
        }
    }
}
