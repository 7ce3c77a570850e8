//! Tests the checks of `hayward preflight`. Each case changes one fact of a healthy fleet.

use std::collections::BTreeMap;

use hayward_service::health::Status;
use hayward_vocabulary::Timestamp;
use serde_json::json;

use super::super::facts::{Fact, PendingMigration};
use super::*;

/// The name of the expected check, and a change of the facts.
type Case = (&'static str, fn(&mut Facts));

/// Returns the facts of a healthy fleet: one service, one migrated schema, a backup of one hour ago
/// and half a disk free.
fn healthy_facts() -> Facts {
    let now = Timestamp::from_unix_ms(1_000_000_000);
    let status = json!({
        "name": "x", "version": env!("CARGO_PKG_VERSION"), "uptime_ms": 1, "ready": true,
        "not_ready": [], "leader": true, "insecure_modes": [], "followers": [],
    });
    let status = serde_json::from_value(status).unwrap();
    let schema = Schema {
        name: "blocklist",
        exists: true,
        ..Schema::default()
    };
    Facts {
        now,
        database: Ok(Database {
            version: 16,
            schemas: vec![schema],
            ..Database::default()
        }),
        services: vec![("blocklist", Ok(status))],
        disk: Some((50 << 30, 100 << 30)),
        backup: Some(now.minus_ms(3_600_000)),
        max_backup_age_hours: 24,
    }
}

fn database(facts: &mut Facts) -> &mut Database {
    facts.database.as_mut().unwrap()
}

fn schema(facts: &mut Facts) -> &mut Schema {
    &mut database(facts).schemas[0]
}

fn first_service(facts: &mut Facts) -> &mut Fact<Status> {
    let (_, status) = &mut facts.services[0];
    status
}

/// Returns the checks that have a verdict other than yes, and the verdict of each.
fn unpassed_checks(facts: &Facts) -> BTreeMap<&'static str, Verdict> {
    let checks = evaluate_checks(facts);
    let unpassed = checks.iter().filter(|check| check.verdict != Verdict::Yes);
    unpassed
        .map(|check| {
            assert!(check.action.is_some(), "{check:?}");
            (check.name, check.verdict)
        })
        .collect()
}

fn pending_migration(contractions: &[&str]) -> PendingMigration {
    PendingMigration {
        version: 7,
        description: "more".to_owned(),
        contractions: contractions.iter().map(|it| (*it).to_owned()).collect(),
    }
}

// All checks are yes. (W17)
#[test]
fn healthy_facts_allow_the_upgrade() {
    assert_eq!(unpassed_checks(&healthy_facts()), BTreeMap::new());
}

// Each case has exactly one check with a no. (W17)
#[test]
fn each_obstacle_refuses_the_upgrade() {
    let cases: [Case; 11] = [
        ("database", |it| it.database = Err("away".to_owned())),
        ("database", |it| database(it).version = 12),
        ("database", |it| database(it).read_only = true),
        ("rights", |it| {
            database(it).missing_permissions = vec!["lacks".to_owned()];
        }),
        ("history", |it| {
            schema(it).went_back = Some("older".to_owned());
        }),
        ("tables", |it| schema(it).broken = vec![3]),
        ("tables", |it| schema(it).changed = vec![3]),
        ("backup", |it| {
            it.backup = None;
            schema(it).pending.push(pending_migration(&[]));
        }),
        ("backup", |it| {
            it.backup = Some(it.now.minus_ms(25 * 3_600_000));
            schema(it).pending.push(pending_migration(&[]));
        }),
        ("versions", |it| {
            first_service(it).as_mut().unwrap().version = "7.9.0".to_owned();
        }),
        ("disk", |it| it.disk = Some((1 << 20, 100 << 30))),
    ];
    for (name, change) in cases {
        let mut facts = healthy_facts();
        change(&mut facts);
        assert_eq!(
            unpassed_checks(&facts),
            BTreeMap::from([(name, Verdict::No)]),
            "{name}"
        );
    }
}

// Each case has exactly one check with a warning. (W17)
#[test]
fn each_warning_is_reported_and_allows_the_upgrade() {
    let cases: [Case; 5] = [
        ("tables", |it| {
            schema(it).pending.push(pending_migration(&["drop table"]));
        }),
        ("tables", |it| schema(it).unknown = 1),
        ("backup", |it| it.backup = None),
        ("clock", |it| database(it).clock_ahead_ms = -6_000),
        ("versions", |it| {
            it.services.push(("node-status", Err("away".to_owned())));
        }),
    ];
    for (name, change) in cases {
        let mut facts = healthy_facts();
        change(&mut facts);
        assert_eq!(
            unpassed_checks(&facts),
            BTreeMap::from([(name, Verdict::Warning)]),
            "{name}"
        );
    }
}

#[test]
fn an_empty_database_allows_the_upgrade() {
    let mut facts = healthy_facts();
    facts.backup = None;
    *first_service(&mut facts) = Err("away".to_owned());
    let schema = schema(&mut facts);
    // All migrations are pending, and empty tables have nothing to lose.
    (schema.exists, schema.pending) = (false, vec![pending_migration(&["drop table"])]);
    assert_eq!(unpassed_checks(&facts), BTreeMap::new());
}

// Neighbouring versions can run side by side during an upgrade. (A15)
#[test]
fn versions_at_most_one_minor_apart_are_compatible() {
    for (other, compatible) in [
        ("0.1.0", true),
        ("0.2.9", true),
        ("0.3.0", false),
        ("1.1.0", false),
    ] {
        assert_eq!(are_compatible("0.1.3", other), compatible, "{other}");
    }
    assert!(!are_compatible("0.1.0", "unknown"));
}
