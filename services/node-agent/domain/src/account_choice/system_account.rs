//! Accounts from the machine's own list of users, and what no program runs as (TC-23).

use hayward_vocabulary::UserName;

use super::{Account, AccountRules, Home, MachineUsers, NoAccount, SystemUser, UNOWNED_UID};

/// Refuses root, accounts of the machine, and groups of the machine.
///
/// # Errors
/// A sentence about `subject`, such as `the system user "backup"`.
pub fn check_ids(subject: &str, uid: u32, gid: u32, least_uid: u32) -> Result<(), String> {
    if uid == 0 {
        return Err(format!("{subject} has uid 0, and work never runs as root"));
    }
    if uid < least_uid {
        return Err(format!(
            "{subject} has uid {uid}, and work runs as no uid below {least_uid}"
        ));
    }
    if gid == 0 || gid < least_uid {
        return Err(format!(
            "{subject} has gid {gid}, and work runs with no gid below {least_uid}"
        ));
    }
    Ok(())
}

/// Returns the account of the system user with the name of this user. `number` is that of the user,
/// if it is known.
///
/// # Errors
/// If there is no such system user, or it is not allowed.
pub fn system_account(
    rules: &AccountRules,
    machine: &dyn MachineUsers,
    user: &UserName,
    number: Option<u32>,
) -> Result<Account, NoAccount> {
    let found = machine.user(user.as_str()).map_err(NoAccount::Unreadable)?;
    let found = found
        .ok_or_else(|| NoAccount::NotAllowed(format!("there is no system user \"{user}\"")))?;
    let (name, uid) = (&found.name, found.uid);
    // A directory service may ignore case, and then `ADA` would get the account of `ada`.
    if name != user.as_str() {
        return Err(NoAccount::NotAllowed(format!(
            "the system user of {user} has another name, {name:?}"
        )));
    }
    if let Some(other) = rules.mapped_to(uid) {
        return Err(NoAccount::NotAllowed(format!(
            "the system user {name:?} has uid {uid}, the account of {other} in `run_as_users`"
        )));
    }
    if rules.range.contains(uid) && number.and_then(|it| rules.range.uid(it)) != Some(uid) {
        return Err(NoAccount::NotAllowed(format!(
            "the system user {name:?} has uid {uid}, a number of the range of other users"
        )));
    }
    mapped_account(rules, machine, found)
}

/// Returns the account of a system user.
///
/// # Errors
/// If the system user is not allowed.
pub fn mapped_account(
    rules: &AccountRules,
    machine: &dyn MachineUsers,
    user: SystemUser,
) -> Result<Account, NoAccount> {
    let (name, uid) = (&user.name, user.uid);
    let subject = format!("the system user {name:?}");
    check_ids(&subject, uid, user.gid, rules.least_uid).map_err(NoAccount::NotAllowed)?;
    if uid == UNOWNED_UID {
        return Err(NoAccount::NotAllowed(format!(
            "{subject} has uid {uid}, which belongs to no user"
        )));
    }
    let first_name = machine.name_of(uid).map_err(NoAccount::Unreadable)?;
    if let Some(first_name) = first_name.filter(|it| it != name) {
        return Err(NoAccount::NotAllowed(format!(
            "{subject} has uid {uid}, which is that of the system user {first_name:?}"
        )));
    }
    let groups = machine.groups_of(&user).map_err(NoAccount::Unreadable)?;
    let is_never = |name: &Option<String>| {
        let name = name.as_ref();
        name.is_some_and(|name| rules.never_groups.contains(name))
    };
    let primary = groups.iter().find(|group| group.gid == user.gid);
    if let Some(primary) = primary.filter(|group| is_never(&group.name)) {
        let group = primary.name.as_deref().unwrap_or_default();
        return Err(NoAccount::NotAllowed(format!(
            "{subject} has the primary group {group:?}, which is in `never_groups`"
        )));
    }
    let further = groups
        .iter()
        .filter(|group| group.gid != 0 && group.gid != user.gid && !is_never(&group.name));
    let further_groups = further.map(|group| group.gid).collect();
    Ok(Account {
        uid,
        gid: user.gid,
        further_groups,
        name: Some(user.name),
        shell: Some(user.shell).filter(|shell| !shell.as_os_str().is_empty()),
        home: Home::OfSystemUser(user.home),
    })
}
