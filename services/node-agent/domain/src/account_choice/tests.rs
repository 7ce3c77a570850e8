use super::*;

/// A pretended list of users.
#[derive(Debug, Default)]
struct PretendedUsers {
    users: Vec<(SystemUser, Vec<SystemGroup>)>,
    unreadable: bool,
    ignores_case: bool,
}

impl PretendedUsers {
    fn with(mut self, name: &str, uid: u32, gid: u32, groups: &[(u32, &str)]) -> Self {
        let user = SystemUser {
            name: name.to_owned(),
            uid,
            gid,
            home: format!("/home/{name}").into(),
            shell: "/bin/bash".into(),
        };
        let group = |(gid, name): &(u32, &str)| SystemGroup {
            gid: *gid,
            name: Some((*name).to_owned()),
        };
        self.users.push((user, groups.iter().map(group).collect()));
        self
    }

    fn read(&self) -> Result<&[(SystemUser, Vec<SystemGroup>)], String> {
        if self.unreadable {
            return Err("the directory service is unavailable".to_owned());
        }
        Ok(&self.users)
    }
}

impl MachineUsers for PretendedUsers {
    fn user(&self, name: &str) -> Result<Option<SystemUser>, String> {
        let mut users = self.read()?.iter();
        let is_same =
            |known: &str| known == name || (self.ignores_case && known.eq_ignore_ascii_case(name));
        Ok(users.find(|it| is_same(&it.0.name)).map(|it| it.0.clone()))
    }

    fn name_of(&self, uid: u32) -> Result<Option<String>, String> {
        let mut users = self.read()?.iter();
        let found = users.find(|it| it.0.uid == uid);
        Ok(found.map(|it| it.0.name.clone()))
    }

    fn groups_of(&self, user: &SystemUser) -> Result<Vec<SystemGroup>, String> {
        let mut users = self.read()?.iter();
        let found = users.find(|it| it.0 == *user);
        Ok(found.map(|it| it.1.clone()).unwrap_or_default())
    }
}

fn machine() -> PretendedUsers {
    PretendedUsers::default()
        .with("backup", 34, 34, &[(34, "backup")])
        .with(
            "ada",
            4321,
            4321,
            &[(4321, "ada"), (44, "video"), (999, "docker")],
        )
        .with("alias", 4321, 4321, &[])
        .with("nobody", UNOWNED_UID, UNOWNED_UID, &[])
        .with("root", 0, 0, &[])
        .with("wheeled", 4400, 4401, &[(4401, "wheel")])
        .with("users", 4500, 100, &[(100, "users")])
        .with("squatter", 1_900_000_007, 1_900_000_007, &[])
}

fn rules(run_as: RunAs) -> AccountRules {
    AccountRules {
        run_as,
        mapped: BTreeMap::new(),
        common: Some(plain_account(UNOWNED_UID)),
        range: AccountRange {
            first: 1_900_000_000,
            size: 65_536,
        },
        least_uid: 1000,
        never_groups: ["docker", "wheel"].map(str::to_owned).into(),
        home_root: None,
        shared_accounts: false,
    }
}

fn plain_account(uid: u32) -> Account {
    Account {
        uid,
        gid: uid,
        further_groups: Vec::new(),
        name: None,
        shell: None,
        home: Home::WorkDirectory,
    }
}

fn user(name: &str) -> UserName {
    name.parse().unwrap()
}

/// Returns the uid for a user with this number, or the reason of the refusal.
fn uid_of(rules: &AccountRules, name: &str, number: u32) -> Result<u32, NoAccount> {
    let launch = LaunchAccount {
        user: user(name),
        number,
    };
    let account = choose_account(rules, &machine(), &user(name), Some(&launch))?;
    Ok(account.unwrap().uid)
}

fn refusal(rules: &AccountRules, name: &str, number: u32) -> String {
    match uid_of(rules, name, number) {
        Err(NoAccount::NotAllowed(reason)) => reason,
        other => panic!("{name}: {other:?}"),
    }
}

/// (TC-21)
#[test]
fn auto_takes_the_system_user_of_the_name_and_else_the_number() {
    let auto = rules(RunAs::Auto);
    assert_eq!(uid_of(&auto, "ada", 1), Ok(4321));
    let passed_over = [
        "backup", "nobody", "root", "alias", "wheeled", "users", "squatter",
    ];
    for name in passed_over.into_iter().chain(["ben"]) {
        assert_eq!(uid_of(&auto, name, 2), Ok(1_900_000_002), "{name}");
    }
    assert_eq!(uid_of(&rules(RunAs::Range), "ada", 1), Ok(1_900_000_001));
    assert_eq!(uid_of(&rules(RunAs::Fixed), "ada", 1), Ok(UNOWNED_UID));
    let agent = choose_account(&rules(RunAs::Agent), &machine(), &user("ada"), None);
    assert_eq!(agent, Ok(None));
}

/// (TC-23)
#[test]
fn a_system_user_that_is_not_allowed_is_refused_with_the_reason() {
    let system = rules(RunAs::System);
    assert_eq!(uid_of(&system, "ada", 1), Ok(4321));
    for (name, reason) in [
        (
            "backup",
            "the system user \"backup\" has uid 34, and work runs as no uid below 1000",
        ),
        (
            "root",
            "the system user \"root\" has uid 0, and work never runs as root",
        ),
        ("ben", "there is no system user \"ben\""),
        (
            "nobody",
            "the system user \"nobody\" has uid 65534, which belongs to no user",
        ),
        (
            "users",
            "the system user \"users\" has gid 100, and work runs with no gid below 1000",
        ),
        (
            "alias",
            "the system user \"alias\" has uid 4321, which is that of the system user \"ada\"",
        ),
        (
            "wheeled",
            "the system user \"wheeled\" has the primary group \"wheel\", which is in \
             `never_groups`",
        ),
        (
            "squatter",
            "the system user \"squatter\" has uid 1900000007, a number of the range of other users",
        ),
    ] {
        assert_eq!(refusal(&system, name, 1), reason);
    }
}

/// (TC-24)
#[test]
fn only_a_system_user_has_further_groups_and_none_that_leads_to_root() {
    let account = |run_as| {
        let launch = LaunchAccount {
            user: user("ada"),
            number: 3,
        };
        let rules = AccountRules {
            home_root: Some("/homes".into()),
            ..rules(run_as)
        };
        let chosen = choose_account(&rules, &machine(), &launch.user, Some(&launch));
        chosen.unwrap().unwrap()
    };
    let of_system = account(RunAs::System);
    assert_eq!(of_system.further_groups, [44]);
    assert_eq!(of_system.home, Home::OfSystemUser("/home/ada".into()));
    assert_eq!(of_system.shell, Some("/bin/bash".into()));
    let of_range = account(RunAs::Range);
    assert_eq!((of_range.uid, of_range.gid), (1_900_000_003, 1_900_000_003));
    assert!(of_range.further_groups.is_empty());
    assert_eq!(of_range.name.as_deref(), Some("ada"));
    assert_eq!(of_range.home, Home::Made("/homes/ada".into()));
    assert_eq!(of_range.shell, Some("/bin/sh".into()));
}

#[test]
fn a_number_that_another_system_user_has_or_beyond_the_range_is_not_offered() {
    let range = rules(RunAs::Range);
    for (number, reason) in [
        (7, "belongs to the system user \"squatter\""),
        (65_280, "beyond the 65536 numbers"),
        (u32::MAX, "beyond the 65536 numbers"),
    ] {
        let Err(refused) = uid_of(&range, "ben", number) else {
            panic!("{number} is allowed")
        };
        let exit = refused.to_exit();
        assert!(exit.message.unwrap().contains(reason), "{number}");
        assert_eq!(exit.cause_code.as_deref(), Some(NOT_OFFERED));
        assert!(!exit.cause.is_user_caused());
    }
    assert_eq!(uid_of(&range, "squatter", 7), Ok(1_900_000_007));
    assert_eq!(uid_of(&range, "ben", 65_279), Ok(1_900_065_279));
}

#[test]
fn a_user_of_the_settings_comes_first_and_shares_the_account_with_none() {
    let mut auto = rules(RunAs::Auto);
    auto.mapped.insert(user("cleo"), plain_account(4321));
    auto.mapped
        .insert(user("dan"), plain_account(1_900_000_009));
    assert_eq!(uid_of(&auto, "cleo", 5), Ok(4321));
    assert_eq!(uid_of(&auto, "ada", 1), Ok(1_900_000_001));
    let taken = uid_of(&auto, "ben", 9);
    assert!(matches!(taken, Err(NoAccount::NotOffered(_))), "{taken:?}");
    assert_eq!(auto.shared_account(), None);
    auto.mapped.insert(user("eve"), plain_account(4321));
    let shared = auto.shared_account();
    assert_eq!(shared, Some((&user("cleo"), &user("eve"), 4321)));
}

#[test]
fn a_launch_without_the_number_of_its_user_has_the_common_account() {
    let other = LaunchAccount {
        user: user("ben"),
        number: 1,
    };
    for launch in [None, Some(&other)] {
        let chosen = choose_account(&rules(RunAs::Range), &machine(), &user("cy"), launch);
        assert_eq!(chosen.unwrap().unwrap().uid, UNOWNED_UID);
        let chosen = choose_account(&rules(RunAs::Auto), &machine(), &user("ada"), launch);
        assert_eq!(chosen.unwrap().unwrap().uid, 4321);
    }
}

/// A user with a system account must not get another account while the list is unavailable.
#[test]
fn an_unreadable_list_of_users_is_a_fault_of_the_machine() {
    let unreadable = PretendedUsers {
        unreadable: true,
        ..machine()
    };
    let launch = LaunchAccount {
        user: user("ada"),
        number: 1,
    };
    let chosen = choose_account(
        &rules(RunAs::Auto),
        &unreadable,
        &launch.user,
        Some(&launch),
    );
    let exit = chosen.unwrap_err().to_exit();
    assert_eq!(exit.cause, ExitCause::Node);
    assert_eq!(exit.cause_code.as_deref(), Some("runtime_down"));
    let message = exit.message.unwrap();
    assert!(
        message.contains("the directory service is unavailable"),
        "{message}"
    );
}

#[test]
fn a_user_never_gets_the_account_of_another_spelling() {
    let machine = PretendedUsers {
        ignores_case: true,
        ..machine()
    };
    let upper = user("ADA");
    let launch = LaunchAccount {
        user: upper.clone(),
        number: 2,
    };
    let choose = |run_as| choose_account(&rules(run_as), &machine, &upper, Some(&launch));
    let account = choose(RunAs::Auto).unwrap().unwrap();
    assert_eq!(account.uid, rules(RunAs::Auto).range.first + 2);
    assert!(matches!(
        choose(RunAs::System),
        Err(NoAccount::NotAllowed(_))
    ));
}
