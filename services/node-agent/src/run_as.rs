//! Accounts of the node that work runs under, from the settings and the machine's list of users.
//! The choice for a user is in the domain crate (TC-21).
//!
//! Only an agent that is root can run work under other accounts. Any other agent runs work under
//! its own account, as the node label `hayward.run_as` shows.

mod home_directory;
mod machine_users;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use hayward_node_agent_domain::account_choice::{
    self, AccountRange, AccountRules, Home, MachineUsers, NoAccount, UNOWNED_UID, check_ids,
    choose_account, mapped_account,
};
use hayward_service::runtime::block_in_place::block_in_place;
use hayward_vocabulary::launch::{FIRST_USER_ID, MIN_USER_ID, OWN_USER_IDS, USER_IDS};
use hayward_vocabulary::{Exit, Launch, UserName};
use nix::unistd::{getegid, geteuid};

pub use account_choice::{Account, RunAs};
pub use home_directory::prepare_home;
use machine_users::SystemLists;

/// Groups whose members can become root.
pub const NEVER_GROUPS: [&str; 11] = [
    "root", "sudo", "wheel", "adm", "disk", "shadow", "kvm", "docker", "lxd", "podman", "libvirt",
];

/// The settings of accounts.
#[derive(Debug, Clone)]
pub struct AccountSettings {
    /// Default: `auto` if the agent is root, else `agent`; `fixed` with `uid`.
    pub run_as: Option<RunAs>,
    /// Pairs such as `ada=alice,ben=2001:2001`.
    pub users: String,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub range_first: u32,
    pub range_size: u32,
    pub least_uid: u32,
    pub never_groups: Vec<String>,
    pub shared_accounts: bool,
    pub home_root: Option<PathBuf>,
}

impl Default for AccountSettings {
    fn default() -> Self {
        Self {
            run_as: None,
            users: String::new(),
            uid: None,
            gid: None,
            range_first: FIRST_USER_ID,
            range_size: USER_IDS,
            least_uid: MIN_USER_ID,
            never_groups: NEVER_GROUPS.map(str::to_owned).to_vec(),
            shared_accounts: false,
            home_root: None,
        }
    }
}

/// Accounts of work, by user.
#[derive(Debug, Clone)]
pub struct Accounts {
    rules: Arc<AccountRules>,
    machine: Arc<dyn MachineUsers>,
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

    fn check_can_use(self, account: &Account) -> anyhow::Result<()> {
        ensure!(
            self.uid == 0 || (self.uid, self.gid) == (account.uid, account.gid),
            "this agent runs as uid {} and cannot run work as uid {} and gid {}: start it as root, \
             or take `run_as_uid` and `run_as_users` away",
            self.uid,
            account.uid,
            account.gid,
        );
        Ok(())
    }
}

impl Accounts {
    /// Reads the settings, with the system users of this machine.
    ///
    /// # Errors
    /// If an account does not exist, is not allowed, or cannot be used by this agent.
    pub fn new(agent: AgentAccount, settings: &AccountSettings) -> anyhow::Result<Self> {
        Self::with_machine(agent, settings, Arc::new(SystemLists))
    }

    fn with_machine(
        agent: AgentAccount,
        settings: &AccountSettings,
        machine: Arc<dyn MachineUsers>,
    ) -> anyhow::Result<Self> {
        let run_as = choose_run_as(agent, settings)?;
        check_range(settings)?;
        let mut rules = AccountRules {
            run_as,
            mapped: BTreeMap::new(),
            common: None,
            range: AccountRange {
                first: settings.range_first,
                size: settings.range_size,
            },
            least_uid: settings.least_uid,
            never_groups: settings.never_groups.iter().cloned().collect(),
            home_root: settings.home_root.clone(),
            shared_accounts: settings.shared_accounts,
        };
        rules.common = common_account(settings, &rules, machine.as_ref())?;
        let pairs = settings.users.split(',').map(str::trim);
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (user, account) = parse_pair(pair, &rules, machine.as_ref())
                .with_context(|| format!("`run_as_users`: {pair:?}"))?;
            rules.mapped.insert(user, account);
        }
        let fixed = rules.common.iter().filter(|_| run_as == RunAs::Fixed);
        for account in rules.mapped.values().chain(fixed) {
            agent.check_can_use(account)?;
            ensure!(
                !rules.range.is_own(account.uid) && !rules.range.is_own(account.gid),
                "uid and gid {} are Hayward's own: its task runners, which hold credentials, use \
                 one of them. Choose another account",
                account.uid
            );
        }
        if let Some((first, second, uid)) = rules.shared_account() {
            ensure!(
                settings.shared_accounts,
                "`run_as_users`: {first} and {second} have one account, uid {uid}, so each can \
                 read the files of the other and stop the other's work: give each an account, or \
                 set `shared_accounts`"
            );
        }
        let rules = Arc::new(rules);
        Ok(Self { rules, machine })
    }

    /// Returns the account for a program of this user. `None` is the account of the agent.
    ///
    /// # Errors
    /// Returns the end of the launch if the user has no allowed account on this node.
    pub fn choose(&self, user: &UserName, launch: &Launch) -> Result<Option<Account>, Exit> {
        let launch_account = launch.account.as_ref();
        let machine = self.machine.as_ref();
        let choose = || choose_account(&self.rules, machine, user, launch_account);
        // A directory service may answer late.
        let account = block_in_place(choose).map_err(|refusal| refusal.to_exit())?;
        let is_unowned = account.as_ref().is_some_and(|it| it.uid == UNOWNED_UID);
        if launch_account.is_none() && is_unowned && self.rules.run_as != RunAs::Fixed {
            tracing::warn!(%user, "the launch has no number of the user, so it runs as uid 65534");
        }
        Ok(account)
    }

    /// Returns the account that the settings map this user to.
    pub fn mapped_account(&self, user: &UserName) -> Option<&Account> {
        self.rules.mapped.get(user)
    }

    /// Returns the user and group id of task runners: the last number of the range. Runners hold
    /// credentials, so they share no account with the programs of users (TC-27). `None` is the
    /// account of the agent, which is not root then.
    pub fn runner_uid(&self) -> Option<u32> {
        let range = &self.rules.range;
        geteuid().is_root().then(|| range.first + (range.size - 1))
    }

    /// Returns the value of the node label.
    pub fn label_value(&self) -> String {
        let run_as = self.rules.run_as.as_str();
        match self.rules.shared_account() {
            Some(_) => format!("{run_as}-shared"),
            None => run_as.to_owned(),
        }
    }

    pub fn uses_agent_account(&self) -> bool {
        self.rules.run_as == RunAs::Agent
    }
}

fn choose_run_as(agent: AgentAccount, settings: &AccountSettings) -> anyhow::Result<RunAs> {
    ensure!(
        settings.gid.is_none() || settings.uid.is_some(),
        "the setting `run_as_gid` needs `run_as_uid`"
    );
    Ok(match (settings.run_as, settings.uid) {
        (Some(RunAs::Fixed) | None, Some(_)) => RunAs::Fixed,
        (Some(RunAs::Fixed), None) => bail!("`run_as: fixed` needs the setting `run_as_uid`"),
        (Some(other), Some(_)) => bail!(
            "the setting `run_as_uid` is for `run_as: fixed`, and `run_as` is {:?}: take one away",
            other.as_str()
        ),
        (Some(RunAs::Agent), None) if agent.uid == 0 => {
            bail!("`run_as: agent`: this agent is root, and work never runs as root")
        }
        (None | Some(RunAs::Agent), None) if agent.uid != 0 => RunAs::Agent,
        (Some(other), None) if agent.uid != 0 => bail!(
            "`run_as: {}`: this agent runs as uid {} and cannot run work under other accounts: \
             start it as root, or set `run_as: agent`",
            other.as_str(),
            agent.uid
        ),
        (chosen, None) => chosen.unwrap_or(RunAs::Auto),
    })
}

fn check_range(settings: &AccountSettings) -> anyhow::Result<()> {
    let (first, size) = (settings.range_first, settings.range_size);
    let least_uid = settings.least_uid;
    ensure!(
        least_uid >= MIN_USER_ID,
        "the setting `least_uid`: {least_uid} is below {MIN_USER_ID}, and those ids belong to the \
         machine"
    );
    ensure!(
        size > OWN_USER_IDS,
        "the setting `run_as_range_size`: {size} numbers are too few, because {OWN_USER_IDS} are \
         Hayward's own"
    );
    // The last id means "no change" in calls of the system.
    let end = first.checked_add(size).filter(|end| *end < u32::MAX);
    let end = end.context("`run_as_range_first` and `run_as_range_size`: the range is too high")?;
    ensure!(
        first >= least_uid && !(first..end).contains(&UNOWNED_UID),
        "the setting `run_as_range_first`: the range {first} to {} has uids below {least_uid} or \
         uid {UNOWNED_UID}",
        end - 1
    );
    Ok(())
}

/// Returns the account of `run_as_uid`, else that of users without a number.
fn common_account(
    settings: &AccountSettings,
    rules: &AccountRules,
    machine: &dyn MachineUsers,
) -> anyhow::Result<Option<Account>> {
    let account = |uid, gid| account_of_ids(uid, gid, rules, machine);
    Ok(match (rules.run_as, settings.uid) {
        (RunAs::Agent, _) => None,
        (_, Some(uid)) => Some(account(uid, settings.gid).context("the setting `run_as_uid`")?),
        (_, None) => Some(account(UNOWNED_UID, None)?),
    })
}

fn parse_pair(
    pair: &str,
    rules: &AccountRules,
    machine: &dyn MachineUsers,
) -> anyhow::Result<(UserName, Account)> {
    let (user, account) = pair
        .split_once('=')
        .context("it is written as user=account")?;
    let user = UserName::new(user.trim()).context("invalid user name")?;
    let account = account.trim();
    let account = match account.split_once(':') {
        Some((uid, gid)) => account_of_ids(uid.parse()?, Some(gid.parse()?), rules, machine)?,
        None => match account.parse() {
            Ok(uid) => account_of_ids(uid, None, rules, machine)?,
            Err(_) => account_of_name(account, rules, machine)?,
        },
    };
    Ok((user, account))
}

fn account_of_name(
    name: &str,
    rules: &AccountRules,
    machine: &dyn MachineUsers,
) -> anyhow::Result<Account> {
    let found = machine.user(name).map_err(anyhow::Error::msg)?;
    let found = found.with_context(|| format!("there is no account {name:?}"))?;
    mapped_account(rules, machine, found).map_err(|refusal| match refusal {
        NoAccount::NotAllowed(reason)
        | NoAccount::NotOffered(reason)
        | NoAccount::Unreadable(reason) => anyhow::Error::msg(reason),
    })
}

/// Returns the account with this uid. Without `gid`, the group is that of the account, or the group
/// with the same number if the node does not know the uid.
fn account_of_ids(
    uid: u32,
    gid: Option<u32>,
    rules: &AccountRules,
    machine: &dyn MachineUsers,
) -> anyhow::Result<Account> {
    let name = machine.name_of(uid).map_err(anyhow::Error::msg)?;
    let known = name.map(|name| machine.user(&name)).transpose();
    let known = known.map_err(anyhow::Error::msg)?.flatten();
    let account = Account {
        uid,
        gid: gid.or(known.as_ref().map(|user| user.gid)).unwrap_or(uid),
        further_groups: Vec::new(),
        name: known.as_ref().map(|user| user.name.clone()),
        shell: known.as_ref().map(|user| user.shell.clone()),
        home: known.map_or(Home::WorkDirectory, |user| Home::OfSystemUser(user.home)),
    };
    check_ids("the account", uid, account.gid, rules.least_uid).map_err(anyhow::Error::msg)?;
    Ok(account)
}

#[cfg(test)]
pub mod tests;
