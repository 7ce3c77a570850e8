//! Tests how a command finds the addresses of the services and its token.

use std::fs;

use super::*;
use crate::local_services::Ports;
use crate::state_directory::FleetFile;

/// Returns a session with this state directory and these environment variables.
fn session(dir: &std::path::Path, variables: &[(&str, &str)]) -> Session {
    Session {
        out: Output::new(false),
        state: dir.to_owned(),
        access: Access::default(),
        environment: variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    }
}

fn token(session: &Session, role: Role) -> String {
    session
        .token(role)
        .unwrap()
        .current()
        .unwrap()
        .unwrap()
        .to_string()
}

#[test]
fn a_missing_fleet_gives_the_command_that_starts_one() {
    let dir = tempfile::tempdir().unwrap();
    let error = session(dir.path(), &[])
        .url(Service::JobConverter)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no fleet found in") && error.contains("`hayward up`"),
        "{error}"
    );
    assert!(error.contains("HAYWARD_JOB_CONVERTER_URL"), "{error}");
}

#[test]
fn addresses_come_from_the_fleet_unless_a_variable_names_another() {
    let dir = tempfile::tempdir().unwrap();
    let file = FleetFile {
        addresses: Ports::from(7400).addresses(),
        pid: 1,
    };
    fs::write(
        dir.path().join("fleet.json"),
        serde_json::to_string(&file).unwrap(),
    )
    .unwrap();
    let session = session(dir.path(), &[("HAYWARD_BLOCKLIST_URL", "http://other:1")]);
    assert_eq!(
        session.url(Service::NodeStatus).unwrap(),
        "http://127.0.0.1:7403"
    );
    assert_eq!(session.url(Service::Blocklist).unwrap(), "http://other:1");
}

#[test]
fn every_role_has_its_token() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("keys/tokens");
    fs::create_dir_all(&tokens).unwrap();
    fs::write(tokens.join("operator.token"), "o").unwrap();
    fs::write(tokens.join("user-ada.token"), "a").unwrap();
    let mut session = session(dir.path(), &[("USER", "ada")]);
    assert_eq!(token(&session, Role::User), "a");
    assert_eq!(token(&session, Role::Operator), "o");
    assert_eq!(token(&session, Role::Reader), "o");
    session.access.user = Some(UserName::new("ada").unwrap());
    assert_eq!(
        token(&session, Role::Reader),
        "a",
        "--user selects the token of the user"
    );
    session.access.user = Some(UserName::new("ben").unwrap());
    let error = session.token(Role::User).err().unwrap().to_string();
    assert!(error.contains("no token for ben"), "{error}");
    assert_eq!(token(&session.as_operator(), Role::User), "o");
}

#[test]
fn an_explicit_token_takes_precedence() {
    let dir = tempfile::tempdir().unwrap();
    let mut session = session(dir.path(), &[("HAYWARD_TOKEN", "given")]);
    assert_eq!(token(&session, Role::Operator), "given");
    let file = dir.path().join("mine");
    fs::write(&file, "from a file\n").unwrap();
    session.access.token_file = Some(file);
    assert_eq!(token(&session, Role::User), "from a file");
}

#[test]
fn the_owner_of_the_keys_can_act_as_any_user() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::create(dir.path().join("keys")).unwrap();
    let session = session(dir.path(), &[("USER", "eve")]);
    let token_text = token(&session, Role::User);
    assert_eq!(token_text.split('.').count(), 3, "a signed token");
    assert!(
        keys.token_path("user-eve").exists(),
        "the token is stored for the next call"
    );
}
