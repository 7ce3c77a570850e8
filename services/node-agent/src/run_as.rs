//! Chooses the account of the node that work runs under: the account that the user is mapped to, or
//! a fixed account without rights. Work never runs under root or another system account, whatever
//! the settings are (S16).
//!
//! Only an agent that is root can run work under other accounts. Any other agent runs work under
//! its own account, as the node label `hayward.run_as` shows.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use hayward_vocabulary::UserName;
use hayward_vocabulary::launch::MIN_USER_ID;
use nix::unistd::{Gid, Uid, User, getegid, geteuid};

/// The default account of work: an unprivileged uid that exists on every Linux.
const DEFAULT_UID: u32 = 65_534;

/// An account that work can run under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    /// Name of the account. `None` if the node does not know the uid.
    pub name: Option<String>,
    pub home: Option<PathBuf>,
}

/// Accounts of work, by user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounts {
    mapped: BTreeMap<String, Account>,
    /// Account for all other users. `None` means the account of the agent, which is not root then.
    other: Option<Account>,
}

/// Account of the agent. Tests can replace it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentAccount {
    pub uid: u32,
    pub gid: u32,
}

impl AgentAccount {
    pub fn current() -> Self {
        Self {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
        }
    }
}

impl Accounts {
    /// Reads the accounts. `users` are pairs such as `ada=alice,ben=2001:2001`.
    ///
    /// # Errors
    /// If an account does not exist, is not allowed, or cannot be used by this agent.
    pub fn new(
        agent: AgentAccount,
        users: &str,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> anyhow::Result<Self> {
        let pairs = users
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty());
        let mut mapped = BTreeMap::new();
        for pair in pairs {
            let (user, account) =
                parse_pair(pair).with_context(|| format!("`run_as_users`: {pair:?}"))?;
            mapped.insert(user, account);
        }
        let other = match (uid, gid) {
            (Some(uid), gid) => {
                Some(account_for_ids(uid, gid).context("the setting `run_as_uid`")?)
            }
            (None, Some(_)) => anyhow::bail!("the setting `run_as_gid` needs `run_as_uid`"),
            (None, None) if agent.uid == 0 => Some(account_for_ids(DEFAULT_UID, None)?),
            (None, None) => None,
        };
        for account in mapped.values().chain(&other) {
            ensure!(
                agent.uid == 0 || (agent.uid, agent.gid) == (account.uid, account.gid),
                "this agent runs as uid {} and cannot run work as uid {} and gid {}: start it as \
                 root, or take `run_as_uid` and `run_as_users` away",
                agent.uid,
                account.uid,
                account.gid,
            );
        }
        Ok(Self { mapped, other })
    }

    /// Returns the account for work of this user. `None` is the account of the agent.
    pub fn for_user(&self, user: &UserName) -> Option<&Account> {
        self.mapped.get(user.as_str()).or(self.other.as_ref())
    }

    /// Returns the account that the settings map this user to.
    pub fn mapped_account(&self, user: &UserName) -> Option<&Account> {
        self.mapped.get(user.as_str())
    }

    /// Returns the value of the node label.
    pub fn label_value(&self) -> String {
        let other = match &self.other {
            Some(account) => account.uid.to_string(),
            None => format!("agent-{}", geteuid()),
        };
        if self.mapped.is_empty() {
            other
        } else {
            format!("mapped-{other}")
        }
    }

    pub fn uses_agent_account(&self) -> bool {
        self.other.is_none()
    }
}

fn parse_pair(pair: &str) -> anyhow::Result<(String, Account)> {
    let (user, account) = pair
        .split_once('=')
        .context("it is written as user=account")?;
    let user = UserName::new(user.trim()).context("invalid user name")?;
    let account = account.trim();
    let account = match account.split_once(':') {
        Some((uid, gid)) => account_for_ids(uid.parse()?, Some(gid.parse()?))?,
        None => {
            if let Ok(uid) = account.parse() {
                account_for_ids(uid, None)?
            } else {
                let user_entry = User::from_name(account)?;
                let user_entry =
                    user_entry.with_context(|| format!("there is no account {account:?}"))?;
                check_allowed(account_from_entry(user_entry))?
            }
        }
    };
    Ok((user.to_string(), account))
}

fn account_from_entry(user: User) -> Account {
    Account {
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        name: Some(user.name),
        home: Some(user.dir),
    }
}

/// Returns the account with this uid. Without `gid`, the group is that of the account, or the group
/// with the same number if the node does not know the uid.
fn account_for_ids(uid: u32, gid: Option<u32>) -> anyhow::Result<Account> {
    let user_entry = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let mut account = user_entry.map_or(
        Account {
            uid,
            gid: uid,
            name: None,
            home: None,
        },
        account_from_entry,
    );
    if let Some(gid) = gid {
        account.gid = Gid::from_raw(gid).as_raw();
    }
    check_allowed(account)
}

/// Refuses root and other system accounts and groups (S16).
fn check_allowed(account: Account) -> anyhow::Result<Account> {
    ensure!(account.uid != 0, "work never runs as root (uid 0)");
    for (kind, id) in [("uid", account.uid), ("gid", account.gid)] {
        ensure!(
            id >= MIN_USER_ID,
            "{kind} {id} is below {MIN_USER_ID}: those belong to the machine, and work runs as \
             none of them"
        );
    }
    Ok(account)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: AgentAccount = AgentAccount { uid: 0, gid: 0 };
    const ADA: AgentAccount = AgentAccount {
        uid: 4001,
        gid: 4001,
    };

    fn user(name: &str) -> UserName {
        UserName::new(name).unwrap()
    }

    #[test]
    fn work_runs_under_the_mapped_or_the_default_account() {
        let accounts = Accounts::new(ROOT, "ada=4001:4002, ben=4003", None, None).unwrap();
        let ids = |name: &str| {
            let account = accounts.for_user(&user(name)).unwrap();
            (account.uid, account.gid)
        };
        assert_eq!(ids("ada"), (4001, 4002));
        assert_eq!(ids("ben"), (4003, 4003));
        assert_eq!(ids("cleo").0, DEFAULT_UID);
        assert_eq!(accounts.label_value(), "mapped-65534");
        let fixed = Accounts::new(ROOT, "", Some(4001), None).unwrap();
        assert_eq!(fixed.for_user(&user("ada")).unwrap().uid, 4001);
    }

    #[test]
    fn system_accounts_are_refused_with_a_reason() {
        let table = [
            (
                Accounts::new(ROOT, "ada=0", None, None),
                "never runs as root",
            ),
            (
                Accounts::new(ROOT, "ada=root", None, None),
                "never runs as root",
            ),
            (Accounts::new(ROOT, "", Some(0), None), "never runs as root"),
            (
                Accounts::new(ROOT, "ada=4001:0", None, None),
                "gid 0 is below 1000",
            ),
            (
                Accounts::new(ROOT, "ada=daemon", None, None),
                "is below 1000",
            ),
            (
                Accounts::new(ROOT, "ada=nobody-of-that-name", None, None),
                "no account",
            ),
            (Accounts::new(ROOT, "ada", None, None), "user=account"),
            (
                Accounts::new(ROOT, "", None, Some(4001)),
                "needs `run_as_uid`",
            ),
            (
                Accounts::new(ADA, "ben=4002", None, None),
                "cannot run work as uid 4002",
            ),
        ];
        for (result, reason) in table {
            let message = format!("{:#}", result.expect_err(reason));
            assert!(
                message.contains(reason),
                "{message:?} does not say {reason:?}"
            );
        }
    }

    #[test]
    fn an_agent_that_is_not_root_runs_work_under_its_own_account() {
        let accounts = Accounts::new(ADA, "", None, None).unwrap();
        assert!(accounts.uses_agent_account() && accounts.for_user(&user("ada")).is_none());
        assert!(accounts.label_value().starts_with("agent-"));
        let own_account = Accounts::new(ADA, "ada=4001", None, None).unwrap();
        assert_eq!(own_account.for_user(&user("ada")).unwrap().uid, 4001);
    }
}
