//! Decides from the collected facts whether the upgrade may start. There is no I/O, so equal facts
//! give the same decision.

use serde::Serialize;

use super::facts::{Database, Facts, Schema};
use crate::commands::operate::doctor::{MAX_CLOCK_DIFFERENCE_MS, is_low};
use crate::output::format::{format_bytes, format_count, format_duration};

/// Major version of the oldest supported Postgres server.
const MIN_POSTGRES_VERSION: u32 = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Yes,
    /// A state that does not prevent the upgrade, but that the operator should know.
    #[serde(rename = "look")]
    Warning,
    No,
}

#[derive(Debug, Clone, Serialize)]
pub struct Check {
    #[serde(rename = "what")]
    pub name: &'static str,
    pub verdict: Verdict,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

fn passed_check(name: &'static str, found: impl Into<String>) -> Check {
    let found = found.into();
    Check {
        name,
        verdict: Verdict::Yes,
        found,
        action: None,
    }
}

fn warning_check(name: &'static str, found: impl Into<String>, action: &str) -> Check {
    Check {
        verdict: Verdict::Warning,
        action: Some(action.to_owned()),
        ..passed_check(name, found)
    }
}

fn failed_check(name: &'static str, found: impl Into<String>, action: &str) -> Check {
    Check {
        verdict: Verdict::No,
        ..warning_check(name, found, action)
    }
}

/// Returns all checks. Without the database, only the checks that do not need it.
pub fn evaluate_checks(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::new();
    match &facts.database {
        Ok(database) => checks.extend(check_database(database, facts)),
        Err(error) => checks.push(failed_check(
            "database",
            error,
            "see that Postgres is up, and that the address names its administrator",
        )),
    }
    checks.push(check_versions(facts));
    checks.push(check_disk(facts));
    checks
}

fn check_database(database: &Database, facts: &Facts) -> Vec<Check> {
    let version = database.version;
    let server_name = format!("Postgres {version}");
    let server = if version < MIN_POSTGRES_VERSION {
        failed_check(
            "database",
            server_name,
            &format!("upgrade it: {MIN_POSTGRES_VERSION} is the oldest that is tried"),
        )
    } else if database.read_only {
        failed_check(
            "database",
            format!("{server_name}, read-only"),
            "name the primary, not a standby",
        )
    } else {
        passed_check("database", server_name)
    };
    let rights = if database.missing_permissions.is_empty() {
        passed_check("rights", "the administrator may do all that is needed")
    } else {
        let found = format!(
            "the administrator {}",
            database.missing_permissions.join(", ")
        );
        failed_check(
            "rights",
            found,
            "grant it, or name another administrator with --admin-url",
        )
    };
    vec![
        server,
        rights,
        check_history(database),
        check_migrations(&database.schemas),
        check_backup(database, facts),
        check_clock(database.clock_ahead_ms),
    ]
}

/// Checks whether the database went back in time, so that services refuse to write. (R9)
fn check_history(database: &Database) -> Check {
    let affected = database.schemas.iter();
    let affected: Vec<String> = affected
        .filter_map(|it| Some(format!("{}: {}", it.name, it.went_back.as_ref()?)))
        .collect();
    if affected.is_empty() {
        return passed_check("history", "no neighbour has seen more than it holds");
    }
    failed_check(
        "history",
        format!("the database went back in time: {}", affected.join("; ")),
        "put a newer backup back (`hayward restore`), or accept what is lost \
         (`hayward restore --accept-loss`)",
    )
}

/// Compares the migrations of the database with those of this version. The most severe difference
/// is the result.
fn check_migrations(schemas: &[Schema]) -> Check {
    let schema_and_versions = |it: &Schema, versions: &[i64]| -> Option<String> {
        let versions: Vec<String> = versions.iter().map(ToString::to_string).collect();
        (!versions.is_empty()).then(|| format!("{} {}", it.name, versions.join(", ")))
    };
    let affected = |field: fn(&Schema) -> &[i64]| -> Vec<String> {
        schemas
            .iter()
            .filter_map(|it| schema_and_versions(it, field(it)))
            .collect()
    };
    let broken = affected(|it| &it.broken);
    if !broken.is_empty() {
        let found = format!("begun and not ended: {}", broken.join("; "));
        let action = "finish it by hand as the owner of the schema, or restore a backup";
        return failed_check("tables", found, action);
    }
    let changed = affected(|it| &it.changed);
    if !changed.is_empty() {
        let found = format!("other than those of this version: {}", changed.join("; "));
        let action = "this database is of another line of versions: use the program it belongs to";
        return failed_check("tables", found, action);
    }
    let contractions = pending_contractions(schemas);
    if !contractions.is_empty() {
        let found = format!("there is no way back from {}", contractions.join("; "));
        let action = "every service must be of the version before this one, or newer, and stay \
                      so; then there is a way back by `hayward restore` only";
        return warning_check("tables", found, action);
    }
    let existing = schemas.iter().filter(|it| it.exists);
    let pending: usize = existing.map(|it| it.pending.len()).sum();
    let unknown: usize = schemas.iter().map(|it| it.unknown).sum();
    let absent = schemas.iter().filter(|it| !it.exists).count();
    if unknown > 0 {
        let found = format!("{} of a newer version", count_text(unknown, "migration"));
        let action = "this is a way back: nothing was taken away from the tables, and what the \
                      newer version added is left alone";
        return warning_check("tables", found, action);
    }
    passed_check(
        "tables",
        match (pending, absent) {
            (0, 0) => "of this version".to_owned(),
            (0, _) => format!("{} to make", count_text(absent, "schema")),
            (_, _) => format!(
                "{} to apply, and all only add",
                count_text(pending, "migration")
            ),
        },
    )
}

/// Returns the pending migrations of existing schemas that remove or narrow something.
fn pending_contractions(schemas: &[Schema]) -> Vec<String> {
    schemas
        .iter()
        .filter(|it| it.exists)
        .flat_map(|it| it.pending.iter().map(move |pending| (it.name, pending)))
        .filter(|(_, pending)| !pending.contractions.is_empty())
        .map(|(name, it)| {
            let statements = it.contractions.join(", ");
            format!("{name} {} ({}): {statements}", it.version, it.description)
        })
        .collect()
}

fn count_text(number: usize, noun: &str) -> String {
    format_count(u64::try_from(number).unwrap_or(u64::MAX), noun)
}

/// Checks the age of the newest backup, because a change of the tables needs a recent backup.
fn check_backup(database: &Database, facts: &Facts) -> Check {
    let existing = database.schemas.iter().filter(|it| it.exists);
    let has_changes = existing.clone().any(|it| !it.pending.is_empty());
    let hours = u64::from(facts.max_backup_age_hours);
    let age = facts.backup.map(|made| facts.now.ms_since(made));
    let found = match age {
        Some(age) => format!("the newest is {} old", format_duration(age)),
        None => "there is none".to_owned(),
    };
    let is_recent = age.is_some_and(|age| age <= hours * 3_600_000);
    let action = "`hayward backup`; where backups are kept elsewhere, name the folder with \
                  --backups";
    match (is_recent, has_changes) {
        (true, _) => passed_check("backup", found),
        (false, true) => failed_check("backup", found, action),
        (false, false) if existing.count() == 0 => {
            passed_check("backup", "there is nothing to save yet")
        }
        (false, false) => warning_check("backup", found, action),
    }
}

fn check_clock(ahead_ms: i64) -> Check {
    let offset = format_duration(ahead_ms.unsigned_abs());
    if ahead_ms.abs() <= MAX_CLOCK_DIFFERENCE_MS {
        return passed_check(
            "clock",
            format!("that of the database is within {offset} of this one"),
        );
    }
    let found = format!("that of the database is {offset} off");
    warning_check(
        "clock",
        found,
        "let both machines keep time (chrony, systemd-timesyncd)",
    )
}

/// Checks the versions of the running services. A version is compatible with the previous and the
/// next one. (A15)
fn check_versions(facts: &Facts) -> Check {
    let ours = env!("CARGO_PKG_VERSION");
    let answered = facts.services.iter();
    let answered: Vec<(&str, &str)> = answered
        .filter_map(|(name, status)| Some((*name, status.as_ref().ok()?.version.as_str())))
        .collect();
    let incompatible: Vec<String> = answered
        .iter()
        .filter(|(_, version)| !are_compatible(ours, version))
        .map(|(name, version)| format!("{name} is {version}"))
        .collect();
    if !incompatible.is_empty() {
        let found = format!("{} and this is {ours}", incompatible.join(", "));
        let action = "go by way of the versions between, one minor version at a time";
        return failed_check("versions", found, action);
    }
    let unreachable = facts.services.len() - answered.len();
    let mut versions: Vec<&str> = answered.iter().map(|(_, version)| *version).collect();
    versions.sort_unstable();
    versions.dedup();
    match (answered.len(), unreachable) {
        (0, _) => passed_check("versions", "no service runs"),
        (_, 0) => passed_check(
            "versions",
            format!("{} run, and talk to {ours}", versions.join(", ")),
        ),
        (_, _) => warning_check(
            "versions",
            format!("{unreachable} of 5 services do not answer"),
            "see `hayward doctor`: an upgrade begins with a fleet that is well",
        ),
    }
}

/// Returns true for two versions with the same major version and at most one minor version apart.
fn are_compatible(left: &str, right: &str) -> bool {
    let parts = |text: &str| -> Option<(u64, u64)> {
        let mut parts = text.split(['.', '-', '+']);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    match (parts(left), parts(right)) {
        (Some((major, minor)), Some((other_major, other_minor))) => {
            major == other_major && minor.abs_diff(other_minor) <= 1
        }
        _ => false,
    }
}

fn check_disk(facts: &Facts) -> Check {
    let Some((free, total)) = facts.disk else {
        return warning_check(
            "disk",
            "there is no state directory here",
            "look at the disk of the database yourself",
        );
    };
    let found = format!("{} of {} left", format_bytes(free), format_bytes(total));
    if is_low(free, total) {
        return failed_check(
            "disk",
            found,
            "make room: a database without any stops the fleet",
        );
    }
    passed_check("disk", found)
}

#[cfg(test)]
mod tests;
