//! Chooses the account of the node that a user's programs run as (TC-21).
//!
//! A user has one account on a node, and two users never share one, unless the settings say that
//! all share one.

mod system_account;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use hayward_vocabulary::launch::{LaunchAccount, NOT_OFFERED, OWN_USER_IDS};
use hayward_vocabulary::{Exit, ExitCause, UserName};
use serde::{Deserialize, Serialize};

use crate::NodeFault;

pub use system_account::{check_ids, mapped_account, system_account};

/// The uid that owns nothing. It belongs to no user.
pub const UNOWNED_UID: u32 = 65_534;

/// The setting that chooses accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAs {
    /// The system user of the same name if it is allowed, else the number of the user.
    Auto,
    /// The system user of the same name.
    System,
    /// The number of the user in the range.
    Range,
    /// The account of the agent, which is not root.
    Agent,
    /// One account for all users.
    Fixed,
}

impl RunAs {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::System => "system",
            Self::Range => "range",
            Self::Agent => "agent",
            Self::Fixed => "fixed",
        }
    }
}

/// A user in the list of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemUser {
    pub name: String,
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    pub home: PathBuf,
    pub shell: PathBuf,
}

/// A group in the list of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemGroup {
    pub gid: u32,
    /// `None` if the machine does not know the number.
    pub name: Option<String>,
}

/// The machine's own list of users. An error is a list that cannot be read now, which is a fault of
/// the machine and no proof that a user does not exist.
pub trait MachineUsers: std::fmt::Debug + Send + Sync {
    fn user(&self, name: &str) -> Result<Option<SystemUser>, String>;

    fn name_of(&self, uid: u32) -> Result<Option<String>, String>;

    /// Returns all groups of a user, with the primary group.
    fn groups_of(&self, user: &SystemUser) -> Result<Vec<SystemGroup>, String>;
}

/// Numbers of the system that belong to users without a system account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountRange {
    pub first: u32,
    /// Count of numbers. The last 256 are Hayward's own.
    pub size: u32,
}

impl AccountRange {
    fn uid(self, number: u32) -> Option<u32> {
        let is_left = number < self.size.saturating_sub(OWN_USER_IDS);
        is_left.then(|| self.first.saturating_add(number))
    }

    /// Returns whether a number is for programs of Hayward.
    pub fn is_own(self, uid: u32) -> bool {
        let first_own = self.size.saturating_sub(OWN_USER_IDS);
        self.contains(uid) && uid - self.first >= first_own
    }

    fn contains(self, uid: u32) -> bool {
        uid.checked_sub(self.first)
            .is_some_and(|number| number < self.size)
    }
}

/// Limits of the choice, from the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRules {
    pub run_as: RunAs,
    /// Accounts of single users. They come before all others.
    pub mapped: BTreeMap<UserName, Account>,
    /// The account of `RunAs::Fixed`, and of users without a number otherwise.
    pub common: Option<Account>,
    pub range: AccountRange,
    /// Smallest uid and gid of programs.
    pub least_uid: u32,
    /// Names of groups that programs never have.
    pub never_groups: BTreeSet<String>,
    /// Directory with the home directories of users of the range. `None` without any.
    pub home_root: Option<PathBuf>,
    /// True if several users may be mapped to one account.
    pub shared_accounts: bool,
}

/// An account that programs run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    pub further_groups: Vec<u32>,
    /// Value of `USER`. `None` if the account has no name.
    pub name: Option<String>,
    pub shell: Option<PathBuf>,
    pub home: Home,
}

/// Home directory of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// The directory of the allocation.
    WorkDirectory,
    /// The directory in the list of the machine, if it can be entered.
    OfSystemUser(PathBuf),
    /// A directory that the agent makes for the user.
    Made(PathBuf),
}

/// Why a launch has no account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAccount {
    /// The user's account is not allowed, or does not exist.
    NotAllowed(String),
    /// An operator has to change the range or the list of users.
    NotOffered(String),
    /// The list of users cannot be read now.
    Unreadable(String),
}

impl NoAccount {
    pub fn to_exit(&self) -> Exit {
        match self {
            Self::NotAllowed(reason) => Exit::of(ExitCause::LaunchFailed, reason),
            Self::NotOffered(reason) => Exit {
                cause_code: Some(NOT_OFFERED.to_owned()),
                ..Exit::of(ExitCause::Node, reason)
            },
            Self::Unreadable(reason) => NodeFault::RuntimeDown
                .to_exit(format!("the list of system users cannot be read: {reason}")),
        }
    }
}

/// Returns the account for a program of this user. `None` is the account of the agent. `launch` is
/// absent if a service of the version before made the launch, or if it is a worker of a pool.
///
/// # Errors
/// If the user has no allowed account here (TC-23).
pub fn choose_account(
    rules: &AccountRules,
    machine: &dyn MachineUsers,
    user: &UserName,
    launch: Option<&LaunchAccount>,
) -> Result<Option<Account>, NoAccount> {
    if let Some(account) = rules.mapped.get(user) {
        return Ok(Some(account.clone()));
    }
    let number = launch.filter(|it| it.user == *user).map(|it| it.number);
    let of_number = || match number {
        Some(number) => range_account(rules, machine, user, number).map(Some),
        None => Ok(rules.common.clone()),
    };
    match rules.run_as {
        RunAs::Agent => Ok(None),
        RunAs::Fixed => Ok(rules.common.clone()),
        RunAs::Range => of_number(),
        RunAs::System => system_account(rules, machine, user, number).map(Some),
        RunAs::Auto => match system_account(rules, machine, user, number) {
            Err(NoAccount::NotAllowed(_)) => of_number(),
            other => other.map(Some),
        },
    }
}

fn range_account(
    rules: &AccountRules,
    machine: &dyn MachineUsers,
    user: &UserName,
    number: u32,
) -> Result<Account, NoAccount> {
    let size = rules.range.size;
    let uid = rules.range.uid(number).ok_or_else(|| {
        NoAccount::NotOffered(format!(
            "the number {number} of {user} is beyond the {size} numbers of `run_as_range_size`, \
             of which {OWN_USER_IDS} are Hayward's own"
        ))
    })?;
    let owner = machine.name_of(uid).map_err(NoAccount::Unreadable)?;
    if let Some(owner) = owner.filter(|owner| owner != user.as_str()) {
        return Err(NoAccount::NotOffered(format!(
            "uid {uid}, the number of {user}, belongs to the system user {owner:?}"
        )));
    }
    if let Some(other) = rules.mapped_to(uid) {
        return Err(NoAccount::NotOffered(format!(
            "uid {uid}, the number of {user}, is the account of {other} in `run_as_users`"
        )));
    }
    let home = rules.home_root.as_ref();
    Ok(Account {
        uid,
        gid: uid,
        further_groups: Vec::new(),
        name: Some(user.to_string()),
        shell: Some("/bin/sh".into()),
        home: home.map_or(Home::WorkDirectory, |root| {
            Home::Made(root.join(user.as_str()))
        }),
    })
}

impl AccountRules {
    /// Returns the user that is mapped to this account.
    fn mapped_to(&self, uid: u32) -> Option<&UserName> {
        let mut pairs = self.mapped.iter();
        let found = pairs.find(|(_, account)| account.uid == uid);
        found.map(|(user, _)| user)
    }

    /// Returns two users that are mapped to one account, and its uid.
    pub fn shared_account(&self) -> Option<(&UserName, &UserName, u32)> {
        self.mapped.iter().find_map(|(user, account)| {
            let first = self.mapped_to(account.uid)?;
            (first != user).then_some((first, user, account.uid))
        })
    }
}
