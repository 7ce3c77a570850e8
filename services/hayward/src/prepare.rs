//! Makes keys, tokens, database roles and schemas before the first start of a fleet. The operation
//! is idempotent: only missing parts are made. Tokens and certificates are renewed on every call,
//! and by [`renew`] before they expire.

pub mod certificate_authority;
pub mod server_certificates;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use hayward_postgres::{Schema, SharedMigrations, prepare as prepare_database, role_url};
use hayward_service::auth::{Groups, TokenSpec, max_lifetime_ms};
use hayward_service::runtime::clock::random_secret;
use hayward_service::{Clock, Keys, Principal, Scope, SystemClock, Verifier};
use hayward_vocabulary::NodeName;

/// Migrations that all five services share.
pub const PUBLICATION: SharedMigrations<'static> = SharedMigrations {
    name: "publication",
    migrator: &hayward_publication::MIGRATOR,
};

/// The five services: name of the token, schema and role, migrations.
pub const SERVICES: [(&str, Schema<'static>); 5] = [
    schema(
        hayward_job_converter::NAME,
        hayward_job_converter::SCHEMA,
        &hayward_job_converter::MIGRATOR,
    ),
    schema(
        hayward_rm_scheduler::NAME,
        hayward_rm_scheduler::SCHEMA,
        &hayward_rm_scheduler::MIGRATOR,
    ),
    schema(
        hayward_container_manager::NAME,
        hayward_container_manager::SCHEMA,
        &hayward_container_manager::MIGRATOR,
    ),
    schema(
        hayward_node_status::NAME,
        hayward_node_status::SCHEMA,
        &hayward_node_status::MIGRATOR,
    ),
    schema(
        hayward_blocklist::NAME,
        hayward_blocklist::SCHEMA,
        &hayward_blocklist::MIGRATOR,
    ),
];

const fn schema(
    service: &'static str,
    name: &'static str,
    migrator: &'static sqlx::migrate::Migrator,
) -> (&'static str, Schema<'static>) {
    (
        service,
        Schema {
            name,
            migrator,
            shared: &[PUBLICATION],
        },
    )
}

/// Makes keys, and tokens for the services, the local operator and these nodes.
pub fn create_keys(dir: &Path, nodes: &[NodeName]) -> anyhow::Result<Keys> {
    let keys = Keys::create(dir)?;
    for (service, _) in SERVICES {
        write_token(
            &keys,
            service,
            service,
            &[Scope::Service(service.to_owned())],
        )?;
    }
    write_token(
        &keys,
        "operator",
        "operator",
        &[Scope::Operator, Scope::Viewer],
    )?;
    for node in nodes {
        create_agent_token(&keys, node)?;
    }
    Ok(keys)
}

pub fn create_agent_token(keys: &Keys, node: &NodeName) -> anyhow::Result<PathBuf> {
    let name = format!("agent-{node}");
    write_token(keys, &name, &name, &[Scope::Agent(node.clone())])?;
    Ok(keys.token_path(&name))
}

/// Makes a token for reading audit records only.
///
/// # Errors
/// When it cannot be written.
pub fn create_auditor_token(keys: &Keys, name: &str) -> anyhow::Result<()> {
    let file = format!("auditor-{name}");
    write_token(keys, &file, name, &[Scope::Auditor]).map(drop)
}

/// Makes a token for reading metrics only.
///
/// # Errors
/// When it cannot be written.
pub fn create_scraper_token(keys: &Keys, name: &str) -> anyhow::Result<()> {
    let file = format!("scraper-{name}");
    write_token(keys, &file, name, &[Scope::Scraper]).map(drop)
}

/// Makes a token for reading everything without changes.
///
/// # Errors
/// When it cannot be written.
pub fn create_viewer_token(keys: &Keys, name: &str) -> anyhow::Result<()> {
    let file = format!("viewer-{name}");
    write_token(keys, &file, name, &[Scope::Viewer]).map(drop)
}

/// Makes a token for a person, who submits work in their own name and reads what is public. The
/// groups are those of the previous token, if there is one.
///
/// # Errors
/// When the existing file does not name the groups of the user. The file stays unchanged.
pub fn create_user_token(keys: &Keys, user: &str) -> anyhow::Result<String> {
    let groups = current_groups(keys, user).with_context(|| {
        let file = keys.token_path(&user_file(user));
        let (file, dir) = (file.display(), keys.dir().display());
        format!(
            "{file} does not say in which groups {user} is; say it with \
             `hayward prepare --keys {dir} --user {user}` and --group NAME or --no-groups"
        )
    })?;
    create_user_token_with_groups(keys, user, groups)
}

/// Reads the groups from the existing token of the user. Returns no groups if there is none.
fn current_groups(keys: &Keys, user: &str) -> anyhow::Result<Groups> {
    if !keys.token_path(&user_file(user)).try_exists()? {
        return Ok(Groups::NONE);
    }
    let token = keys.token(&user_file(user))?;
    let principal = keys.verifier(Arc::new(SystemClock))?.principal_of(&token)?;
    // A token of another user would grant that user's groups.
    if principal.name != user {
        bail!("it is a token of {}", principal.name);
    }
    Ok(principal.groups.clone())
}

/// Makes the token of a user with these groups.
pub fn create_user_token_with_groups(
    keys: &Keys,
    user: &str,
    groups: Groups,
) -> anyhow::Result<String> {
    write_token_with_groups(keys, &user_file(user), user, &[Scope::Submitter], groups)
}

fn user_file(user: &str) -> String {
    format!("user-{user}")
}

fn write_token(keys: &Keys, name: &str, subject: &str, scopes: &[Scope]) -> anyhow::Result<String> {
    write_token_with_groups(keys, name, subject, scopes, Groups::NONE)
}

fn write_token_with_groups(
    keys: &Keys,
    name: &str,
    subject: &str,
    scopes: &[Scope],
    groups: Groups,
) -> anyhow::Result<String> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let spec = TokenSpec {
        subject,
        scopes,
        groups,
        life_ms: max_lifetime_ms(scopes),
        clock,
    };
    keys.write_token(name, &spec)
        .with_context(|| format!("cannot write the token of {name}"))
}

/// Renews every token that has lived a third of its life, with the same content. Revoked tokens
/// stay as they are, and files without a valid token are skipped. Returns the number of renewed
/// tokens.
///
/// # Errors
/// When the directory cannot be read, or a token cannot be written.
pub fn renew(keys: &Keys, clock: &Arc<dyn Clock>) -> anyhow::Result<usize> {
    renew_where(keys, clock, Verifier::due_for_renewal)
}

/// Renews all tokens regardless of age, for example after a change of the signing key.
///
/// # Errors
/// See [`renew`].
pub fn renew_all(keys: &Keys) -> anyhow::Result<usize> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    renew_where(keys, &clock, |verifier, token| verifier.verify(token).ok())
}

fn renew_where(
    keys: &Keys,
    clock: &Arc<dyn Clock>,
    needs_renewal: impl Fn(&Verifier, &str) -> Option<Arc<Principal>>,
) -> anyhow::Result<usize> {
    let verifier = keys.verifier(Arc::clone(clock))?;
    let mut renewed = 0;
    for name in keys.token_names()? {
        let Ok(Some(principal)) = keys
            .token(&name)
            .map(|token| needs_renewal(&verifier, &token))
        else {
            continue;
        };
        renew_one(keys, clock, &name, &principal)?;
        renewed += 1;
    }
    Ok(renewed)
}

/// Makes a new token with the subject and content of the token in this file.
///
/// # Errors
/// When it cannot be written.
pub fn renew_one(
    keys: &Keys,
    clock: &Arc<dyn Clock>,
    name: &str,
    principal: &Principal,
) -> anyhow::Result<()> {
    let spec = TokenSpec {
        subject: &principal.name,
        scopes: &principal.scopes,
        groups: principal.groups.clone(),
        life_ms: max_lifetime_ms(&principal.scopes),
        clock: Arc::clone(clock),
    };
    let written = keys.write_token(name, &spec);
    written.with_context(|| format!("cannot renew the token of {name}"))?;
    Ok(())
}

/// Name of the database in a private server.
pub const PRIVATE_DATABASE: &str = "hayward";

/// Interval between checks for tokens that are due for renewal.
pub const RENEWAL_CHECK: std::time::Duration = std::time::Duration::from_mins(10);

/// Makes roles, schemas and migrations. Returns the database address by role, and writes it to
/// `<keys>/database/<role>.url` for the owner only.
pub async fn set_up_database(
    keys: &Keys,
    admin_url: &str,
    trusts_socket: bool,
) -> anyhow::Result<BTreeMap<String, String>> {
    let dir = keys.dir().join("database");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
    let mut passwords = BTreeMap::new();
    let mut urls = BTreeMap::new();
    for (_, schema) in SERVICES {
        // A private server trusts connections over its own socket. On all other servers each role
        // has a password.
        let password = if trusts_socket {
            None
        } else {
            Some(read_or_create_password(&dir, schema.name)?)
        };
        let url = role_url(admin_url, schema.name, password.as_deref())?;
        write_secret(&dir.join(format!("{}.url", schema.name)), &url)?;
        urls.insert(schema.name.to_owned(), url);
        passwords.extend(password.map(|password| (schema.name.to_owned(), password)));
    }
    let schemas = SERVICES.map(|(_, schema)| schema);
    prepare_database(admin_url, &schemas, &passwords).await?;
    Ok(urls)
}

fn read_or_create_password(dir: &Path, role: &str) -> anyhow::Result<String> {
    let path = dir.join(format!("{role}.password"));
    if let Ok(password) = fs::read_to_string(&path) {
        return Ok(password.trim().to_owned());
    }
    let password = random_secret();
    write_secret(&path, &password)?;
    Ok(password)
}

/// Creates a file that only its owner can read. The permissions are set at its creation.
pub fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stay_until_they_are_changed() {
        let dir = tempfile::tempdir().unwrap();
        let keys = create_keys(&dir.path().join("keys"), &[]).unwrap();
        let verifier = keys.verifier(Arc::new(SystemClock)).unwrap();
        let groups = |token: String| verifier.verify(&token).unwrap().groups.clone();
        let dev = Groups::new(vec!["dev".to_owned()]).unwrap();
        assert!(groups(create_user_token(&keys, "ann").unwrap()).is_empty());
        let token = create_user_token_with_groups(&keys, "ann", dev.clone()).unwrap();
        assert_eq!(groups(token), dev);
        // `hayward up` renews the token at each start, and the groups stay.
        assert_eq!(groups(create_user_token(&keys, "ann").unwrap()), dev);
        assert!(groups(create_user_token(&keys, "ben").unwrap()).is_empty());
        let none = create_user_token_with_groups(&keys, "ann", Groups::NONE).unwrap();
        assert!(groups(none).is_empty());
    }

    #[test]
    fn tokens_are_renewed_after_a_third_of_their_life_unless_they_are_revoked() {
        const HOUR_MS: u64 = 3_600_000;
        let dir = tempfile::tempdir().unwrap();
        let keys = create_keys(&dir.path().join("keys"), &["n1".parse().unwrap()]).unwrap();
        let dev = Groups::new(vec!["dev".to_owned()]).unwrap();
        let token_of_ann = create_user_token_with_groups(&keys, "ann", dev.clone()).unwrap();
        create_user_token(&keys, "ben").unwrap();
        let verifier = keys.verifier(Arc::new(SystemClock)).unwrap();
        fs::write(
            keys.revoked_path(),
            verifier.token_id(&keys.token("user-ben").unwrap()).unwrap(),
        )
        .unwrap();
        fs::write(keys.token_path("stray"), "no token").unwrap();
        let clock_after = |hours: u64| -> Arc<dyn Clock> {
            let now = SystemClock.now().plus_ms(hours * HOUR_MS);
            Arc::new(hayward_service::ManualClock::new(now))
        };
        assert_eq!(renew(&keys, &clock_after(1)).unwrap(), 0);
        // The operator's token is valid for eight hours.
        assert_eq!(renew(&keys, &clock_after(3)).unwrap(), 1);
        assert_eq!(keys.token("user-ann").unwrap(), token_of_ann);
        // Expired tokens are renewed too, because the fleet may have been off.
        assert_eq!(renew(&keys, &clock_after(30)).unwrap(), 3);
        let token_of_ben = keys.token("user-ben").unwrap();
        assert!(
            verifier
                .token_id(&token_of_ben)
                .is_some_and(|id| fs::read_to_string(keys.revoked_path()).unwrap() == id)
        );
        let verifier_later = keys.verifier(clock_after(31)).unwrap();
        let ann = verifier_later
            .verify(&keys.token("user-ann").unwrap())
            .unwrap();
        assert_eq!((ann.name.as_str(), &ann.groups), ("ann", &dev));
        assert!(
            verifier_later
                .verify(&keys.token("agent-n1").unwrap())
                .is_ok()
        );
    }

    #[test]
    fn a_file_without_a_token_of_this_user_is_refused_and_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let keys = create_keys(&dir.path().join("keys"), &[]).unwrap();
        let dev = Groups::new(vec!["dev".to_owned()]).unwrap();
        let token_of_ben = create_user_token_with_groups(&keys, "ben", dev).unwrap();
        let file = keys.token_path("user-ann");
        for (text, expected) in [
            ("a.b.c", "not one of ours"),
            ("", "not one of ours"),
            (token_of_ben.as_str(), "it is a token of ben"),
        ] {
            write_secret(&file, text).unwrap();
            let message = format!("{:#}", create_user_token(&keys, "ann").unwrap_err());
            assert!(message.contains(expected), "{message}");
            assert!(message.contains("--group NAME or --no-groups"), "{message}");
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        let token_of_ann = create_user_token_with_groups(&keys, "ann", Groups::NONE).unwrap();
        assert_ne!(token_of_ann, token_of_ben);
        assert!(create_user_token(&keys, "ann").is_ok());
    }
}
