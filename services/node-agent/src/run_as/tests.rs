use hayward_node_agent_domain::account_choice::{SystemGroup, SystemUser};
use hayward_vocabulary::Program;

use super::*;

const ROOT: AgentAccount = AgentAccount { uid: 0, gid: 0 };
const ADA: AgentAccount = AgentAccount {
    uid: 4001,
    gid: 4001,
};

/// A machine with the system users `root` and `daemon` alone.
#[derive(Debug)]
struct TwoUsers;

impl TwoUsers {
    fn find(is_wanted: impl Fn(&SystemUser) -> bool) -> Option<SystemUser> {
        let user = |name: &str, uid| SystemUser {
            name: name.to_owned(),
            uid,
            gid: uid,
            home: "/".into(),
            shell: "/bin/sh".into(),
        };
        let mut users = [user("root", 0), user("daemon", 1)].into_iter();
        users.find(is_wanted)
    }
}

impl MachineUsers for TwoUsers {
    fn user(&self, name: &str) -> Result<Option<SystemUser>, String> {
        Ok(Self::find(|user| user.name == name))
    }

    fn name_of(&self, uid: u32) -> Result<Option<String>, String> {
        Ok(Self::find(|user| user.uid == uid).map(|user| user.name))
    }

    fn groups_of(&self, _: &SystemUser) -> Result<Vec<SystemGroup>, String> {
        Ok(Vec::new())
    }
}

/// Returns the accounts of an agent that is root, with these `run_as_users`.
pub fn root_accounts(users: &str) -> Accounts {
    accounts(ROOT, &with_users(users)).unwrap()
}

fn accounts(agent: AgentAccount, settings: &AccountSettings) -> anyhow::Result<Accounts> {
    Accounts::with_machine(agent, settings, Arc::new(TwoUsers))
}

fn with_users(users: &str) -> AccountSettings {
    AccountSettings {
        users: users.to_owned(),
        ..AccountSettings::default()
    }
}

fn with_uid(uid: u32) -> AccountSettings {
    AccountSettings {
        uid: Some(uid),
        ..AccountSettings::default()
    }
}

fn launch(user: &str, number: Option<u32>) -> Launch {
    let user: UserName = user.parse().unwrap();
    Launch {
        program: Program::Command { argv: Vec::new() },
        environment: BTreeMap::new(),
        working_directory: None,
        stop_grace_ms: 0,
        traceparent: None,
        within: None,
        account: number.map(|number| hayward_vocabulary::launch::LaunchAccount { user, number }),
        limits: None,
    }
}

fn ids(accounts: &Accounts, name: &str, number: Option<u32>) -> (u32, u32) {
    let chosen = accounts.choose(&name.parse().unwrap(), &launch(name, number));
    let account = chosen.unwrap().unwrap();
    (account.uid, account.gid)
}

#[test]
fn work_runs_under_the_mapped_account_or_the_number_of_its_user() {
    let accounts = root_accounts("ada=4001:4002, ben=4003");
    assert_eq!(ids(&accounts, "ada", Some(7)), (4001, 4002));
    assert_eq!(ids(&accounts, "ben", None), (4003, 4003));
    let of_number = (1_900_000_008, 1_900_000_008);
    assert_eq!(ids(&accounts, "cleo", Some(8)), of_number);
    assert_eq!(ids(&accounts, "daemon", Some(8)), of_number);
    assert_eq!(ids(&accounts, "cleo", None).0, UNOWNED_UID);
    assert_eq!(accounts.label_value(), "auto");
}

#[test]
fn a_user_id_in_the_settings_means_one_account_for_all() {
    let fixed = accounts(ROOT, &with_uid(4001)).unwrap();
    assert_eq!(ids(&fixed, "ada", Some(1)).0, 4001);
    assert_eq!(fixed.label_value(), "fixed");
    let system = AccountSettings {
        run_as: Some(RunAs::System),
        ..with_uid(4001)
    };
    let refused = accounts(ROOT, &system).unwrap_err().to_string();
    assert!(refused.contains("is for `run_as: fixed`"), "{refused}");
}

#[test]
fn forbidden_accounts_are_refused_with_a_reason() {
    let range = |range_first, range_size| AccountSettings {
        range_first,
        range_size,
        ..AccountSettings::default()
    };
    let mode = |run_as| AccountSettings {
        run_as: Some(run_as),
        ..AccountSettings::default()
    };
    let group_alone = AccountSettings {
        gid: Some(4001),
        ..AccountSettings::default()
    };
    let table = [
        (ROOT, with_users("ada=0"), "never runs as root"),
        (ROOT, with_users("ada=root"), "never runs as root"),
        (ROOT, with_uid(0), "never runs as root"),
        (ROOT, with_users("ada=4001:0"), "no gid below 1000"),
        (ROOT, with_users("ada=daemon"), "no uid below 1000"),
        (ROOT, with_users("ada=nothing-there"), "no account"),
        (ROOT, with_users("ada"), "user=account"),
        (ROOT, group_alone, "needs `run_as_uid`"),
        (ROOT, mode(RunAs::Agent), "never runs as root"),
        (ROOT, mode(RunAs::Fixed), "needs the setting `run_as_uid`"),
        (ROOT, range(60_000, 10_000), "uid 65534"),
        (ROOT, range(500, 1_000), "below 1000"),
        (ROOT, range(100_000, 256), "too few"),
        (ROOT, range(u32::MAX - 256, 300), "too high"),
        (ADA, with_users("ben=4002"), "cannot run work as uid 4002"),
        (ADA, mode(RunAs::Range), "start it as root"),
    ];
    for (agent, settings, reason) in table {
        let message = format!("{:#}", accounts(agent, &settings).expect_err(reason));
        assert!(
            message.contains(reason),
            "{message:?} does not say {reason:?}"
        );
    }
}

/// (TC-21)
#[test]
fn two_users_get_one_account_only_if_the_settings_allow_it() {
    let mut settings = with_users("ada=4001, ben=4001");
    let refused = accounts(ROOT, &settings).unwrap_err().to_string();
    for part in ["ada", "ben", "4001", "shared_accounts"] {
        assert!(refused.contains(part), "{refused:?} does not name {part}");
    }
    settings.shared_accounts = true;
    let shared = accounts(ROOT, &settings).unwrap();
    assert_eq!(shared.label_value(), "auto-shared");
}

#[test]
fn an_agent_that_is_not_root_runs_work_under_its_own_account() {
    let own = accounts(ADA, &AccountSettings::default()).unwrap();
    let chosen = own.choose(&"ada".parse().unwrap(), &launch("ada", Some(1)));
    assert!(own.uses_agent_account() && chosen.unwrap().is_none());
    assert_eq!(own.label_value(), "agent");
    let mapped = accounts(ADA, &with_users("ada=4001")).unwrap();
    assert_eq!(ids(&mapped, "ada", None).0, 4001);
}
