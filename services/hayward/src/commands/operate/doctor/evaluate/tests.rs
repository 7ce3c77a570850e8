//! Tests the findings of `hayward doctor`. Each case changes one fact of a healthy fleet of five
//! services and four nodes.

use hayward_service::health::Status;
use hayward_service::invariants::{Invariants, RuleStatus};
use hayward_vocabulary::Timestamp;
use hayward_vocabulary::invariant_finding::Evidence;

use super::super::facts::{BlockedNode, Disk, Lag, NodeFacts, Replica, UnhealthyNode, WaitingWork};
use super::super::identity::{SharedAccount, SharedAccountNode};
use super::super::render;
use super::*;
use crate::output::Renderer;

fn status(name: &str) -> Status {
    Status {
        name: name.to_owned(),
        version: "0.1.0".to_owned(),
        schema: Some(5),
        uptime_ms: 60_000,
        ready: true,
        not_ready: Vec::new(),
        leader: true,
        epoch: Some(1),
        revision: Some(10),
        followers: Vec::new(),
        insecure_modes: Vec::new(),
    }
}

fn rule(id: &str, result: RuleResult) -> RuleStatus {
    RuleStatus {
        id: id.to_owned(),
        title: "no node has given out more than it has".to_owned(),
        result,
        why: None,
        revision: 10,
        checked_at: Timestamp::default(),
        last_good_at: None,
        examined: 3,
        violations: u64::from(result == RuleResult::Violated),
        evidence: Vec::new(),
        took_us: 5,
    }
}

fn service(name: &'static str) -> ServiceFacts {
    let lag = Lag {
        publication: "allocations".to_owned(),
        silent_ms: Some(400),
        stale: false,
        behind: Some(0),
        fault: None,
    };
    ServiceFacts {
        name,
        url: "http://127.0.0.1:1".to_owned(),
        status: Ok(status(name)),
        replicas: Vec::new(),
        invariants: Ok(Invariants {
            service: name.to_owned(),
            revision: 10,
            checked_at: Timestamp::default(),
            rules: vec![
                rule("I2", RuleResult::Holds),
                rule("I19", RuleResult::Holds),
            ],
        }),
        clock_ahead_ms: Some(300),
        lags: vec![lag],
    }
}

/// Returns the facts of a healthy fleet. One of its nodes is varied off, and one is drained.
fn healthy_facts() -> Facts {
    let names = [
        "job-converter",
        "rm-scheduler",
        "container-manager",
        "node-status",
        "blocklist",
    ];
    Facts {
        at: Timestamp::default(),
        services: names.map(service).into(),
        nodes: Ok(NodeFacts {
            healthy: 4,
            varied_off: 1,
            drains: 1,
            ..NodeFacts::default()
        }),
        blocked: Ok(Vec::new()),
        waiting: Ok(Vec::new()),
        disk: Some(Disk {
            free_bytes: 50 << 30,
            total_bytes: 100 << 30,
        }),
    }
}

fn facts_with_problem(problem: NodeProblem) -> Facts {
    let mut facts = healthy_facts();
    facts.nodes.as_mut().unwrap().unhealthy.push(UnhealthyNode {
        node: "n1".to_owned(),
        problem,
        detail: "it says so".to_owned(),
    });
    facts
}

fn facts_with_wait(ms: u64) -> Facts {
    let mut facts = healthy_facts();
    facts.waiting = Ok(vec![WaitingWork {
        work: "job_1".to_owned(),
        user: "ann".to_owned(),
        since: Timestamp::default(),
        waits_ms: ms,
        reason: Some("no host is large enough".to_owned()),
    }]);
    facts
}

fn facts_with(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = healthy_facts();
    change(&mut facts);
    facts
}

fn add_replica(facts: &mut Facts, status: Result<Status, String>) {
    let url = "http://127.0.0.1:2".to_owned();
    first_service(facts).replicas.push(Replica { url, status });
}

/// Returns a fleet in which one rule of the first service is not checked. The service has this
/// uptime, and last tried to check the rule at 500,000 ms. `change` changes the state of the rule.
fn facts_with_unchecked_rule(uptime_ms: u64, change: impl FnOnce(&mut RuleStatus)) -> Facts {
    facts_with(|it| {
        first_service(it).status.as_mut().unwrap().uptime_ms = uptime_ms;
        let rule = &mut first_service(it).invariants.as_mut().unwrap().rules[0];
        rule.result = RuleResult::NotChecked;
        rule.checked_at = Timestamp::from_unix_ms(500_000);
        change(rule);
    })
}

fn first_service(facts: &mut Facts) -> &mut ServiceFacts {
    &mut facts.services[0]
}

fn service_named<'a>(facts: &'a mut Facts, name: &str) -> &'a mut ServiceFacts {
    let mut services = facts.services.iter_mut();
    services.find(|it| it.name == name).unwrap()
}

fn connection_refused() -> String {
    "connection refused".to_owned()
}

/// Compares kind and subject of each finding, and checks that it has a text and a remedy.
fn assert_findings(case: &str, facts: &Facts, expected: &[(Kind, &str)]) {
    let found = evaluate_facts(facts);
    let kinds_and_subjects: Vec<(Kind, &str)> = found
        .iter()
        .map(|finding| (finding.kind, finding.subject.as_str()))
        .collect();
    assert_eq!(kinds_and_subjects, expected, "{case}: {found:#?}");
    for finding in found {
        assert!(
            !finding.description.is_empty() && !finding.action.is_empty(),
            "{case}"
        );
    }
}

fn assert_none_found(case: &str, facts: &Facts) {
    assert_findings(case, facts, &[]);
}

/// Puts all services into the state in which they wait for a decision of the operator.
fn set_rolled_back_everywhere(facts: &mut Facts) {
    for service in &mut facts.services {
        let status = service.status.as_mut().unwrap();
        (status.ready, status.leader) = (false, false);
        status.not_ready = vec![format!("{WENT_BACK}, and nothing is written: x")];
        service.invariants = Err("read only".to_owned());
    }
}

#[test]
fn a_service_that_is_down_or_not_ready_is_one_finding() {
    assert_none_found("well", &healthy_facts());
    let down = facts_with(|it| first_service(it).status = Err(connection_refused()));
    assert_findings(
        "one is down",
        &down,
        &[(Kind::Unreachable, "job-converter")],
    );
    let not_ready = facts_with(|it| {
        let service = first_service(it);
        service.invariants = Err("does not lead".to_owned());
        let status = service.status.as_mut().unwrap();
        status.ready = false;
        status.not_ready = vec!["on standby".to_owned()];
    });
    let expected = [(Kind::NotReady, "job-converter")];
    assert_findings("not ready, and so without rules", &not_ready, &expected);
    let with_standby = facts_with(|it| {
        let mut standby = status("job-converter");
        (standby.ready, standby.leader) = (false, false);
        add_replica(it, Ok(standby));
    });
    assert_none_found("a standby next to the leader", &with_standby);
    let dead_standby = facts_with(|it| add_replica(it, Err(connection_refused())));
    let expected = [(Kind::Unreachable, "job-converter")];
    assert_findings("a dead standby", &dead_standby, &expected);
}

// All services wait for the same decision. (R9)
#[test]
fn a_rolled_back_database_is_one_finding_of_the_fleet() {
    let expected = [(Kind::DatabaseRolledBack, "database")];
    let running = facts_with(set_rolled_back_everywhere);
    assert_findings("while the services ran", &running, &expected);
    let started = facts_with(|it| {
        set_rolled_back_everywhere(it);
        it.nodes = Ok(NodeFacts::default());
        for lag in it.services.iter_mut().flat_map(|it| &mut it.lags) {
            (lag.stale, lag.silent_ms) = (true, None);
        }
    });
    assert_findings("services that know nothing yet", &started, &expected);
}

#[test]
fn a_rule_is_a_finding_when_it_is_broken_or_unchecked_for_long() {
    let unchecked = [(Kind::Unchecked, "I2")];
    assert_none_found("at the start", &facts_with_unchecked_rule(120_000, |_| ()));
    assert_findings(
        "never checked",
        &facts_with_unchecked_rule(120_001, |_| ()),
        &unchecked,
    );
    let checked_at = |ms| {
        let at = Some(Timestamp::from_unix_ms(ms));
        facts_with_unchecked_rule(900_000, |it| it.last_good_at = at)
    };
    assert_none_found("checked lately", &checked_at(380_000));
    assert_findings("checked long ago", &checked_at(379_999), &unchecked);
    let off = facts_with_unchecked_rule(900_000, |it| it.why = Some(BLOCKLIST_OFF.to_owned()));
    assert_none_found("a blocklist that is switched off", &off);
    let newer = facts_with_unchecked_rule(1, |it| it.result = RuleResult::Unknown);
    assert_findings("a result of a later version", &newer, &unchecked);
    let broken = facts_with(|it| {
        let rules = &mut first_service(it).invariants.as_mut().unwrap().rules;
        rules[0].result = RuleResult::Violated;
        rules[0].violations = 12;
        rules[0].evidence = vec![Evidence::new("n1", "5 of 4 quanta")];
    });
    assert_findings("a broken rule", &broken, &[(Kind::Invariant, "I2")]);
    let forbidden = facts_with(|it| first_service(it).invariants = Err("forbidden".to_owned()));
    let expected = [(Kind::Unchecked, "job-converter")];
    assert_findings("rules that may not be read", &forbidden, &expected);
}

#[test]
fn silent_publishers_versions_clocks_accounts_and_insecure_modes_are_findings() {
    let silent = [(Kind::StalePublication, "job-converter")];
    let stale = facts_with(|it| first_service(it).lags[0].stale = true);
    assert_findings("a stale follower", &stale, &silent);
    let late = facts_with(|it| first_service(it).lags[0].silent_ms = Some(25_001));
    assert_findings("a silent publisher", &late, &silent);
    let versions =
        facts_with(|it| first_service(it).status.as_mut().unwrap().version = "0.2.0".to_owned());
    assert_findings("two versions", &versions, &[(Kind::Versions, "versions")]);
    let ahead = |ms| facts_with(|it| first_service(it).clock_ahead_ms = Some(ms));
    let expected = [(Kind::Clock, "job-converter")];
    assert_findings("a clock that is off", &ahead(-5_001), &expected);
    assert_none_found("a clock that is not off enough", &ahead(5_000));
    let insecure = facts_with(|it| {
        let status = first_service(it).status.as_mut().unwrap();
        status.insecure_modes.push("plain http".to_owned());
    });
    let expected = [(Kind::Insecure, "insecure modes")];
    assert_findings("an insecure mode", &insecure, &expected);
    let shared = facts_with(|it| {
        let nodes = it.nodes.as_mut().unwrap();
        nodes.shared_accounts.push(SharedAccountNode {
            node: "n1".to_owned(),
            account: SharedAccount::Agent,
        });
    });
    assert_findings("a shared account", &shared, &[(Kind::Identity, "n1")]);
}

#[test]
fn nodes_waits_and_disks_are_findings() {
    let none = facts_with(|it| it.nodes = Ok(NodeFacts::default()));
    assert_findings("no nodes", &none, &[(Kind::Node, "nodes")]);
    for problem in [
        NodeProblem::Lost,
        NodeProblem::DuplicateAgents,
        NodeProblem::DiskLow,
        NodeProblem::DrainFailed,
    ] {
        let case = format!("{problem:?}");
        assert_findings(&case, &facts_with_problem(problem), &[(Kind::Node, "n1")]);
    }
    assert_none_found("work that waits a day", &facts_with_wait(LONG_WAIT_MS));
    let expected = [(Kind::Waiting, "job_1")];
    assert_findings(
        "work that waits longer",
        &facts_with_wait(LONG_WAIT_MS + 1),
        &expected,
    );
    let full = facts_with(|it| it.disk.as_mut().unwrap().free_bytes = 1 << 30);
    let expected = [(Kind::Disk, "state directory")];
    assert_findings("a disk here", &full, &expected);
    assert_none_found("no disk here", &facts_with(|it| it.disk = None));
    let blocked = facts_with(|it| {
        it.blocked = Ok(vec![BlockedNode {
            node: "n1".to_owned(),
            cause: "disk".to_owned(),
            automatic: true,
            on_trial: false,
        }]);
    });
    assert_none_found("a block", &blocked);
}

#[test]
fn an_unreadable_list_is_a_finding_unless_its_service_is_down() {
    let forbidden = facts_with(|it| it.nodes = Err("forbidden".to_owned()));
    let expected = [(Kind::Unchecked, "node-status")];
    assert_findings("of a service that answers", &forbidden, &expected);
    let down = facts_with(|it| {
        service_named(it, "node-status").status = Err(connection_refused());
        it.nodes = Err(connection_refused());
    });
    let expected = [(Kind::Unreachable, "node-status")];
    assert_findings("of a service that is down", &down, &expected);
}

#[test]
fn the_most_severe_finding_is_first() {
    let both = facts_with(|it| {
        first_service(it).clock_ahead_ms = Some(60_000);
        service_named(it, "rm-scheduler").status = Err(connection_refused());
    });
    let expected = [
        (Kind::Unreachable, "rm-scheduler"),
        (Kind::Clock, "job-converter"),
    ];
    assert_findings("both", &both, &expected);
}

#[test]
fn every_rule_has_its_own_advice() {
    let unknown = advice::for_rule("I99");
    for id in [
        "I2", "I5", "I10", "I13", "I14", "I16", "I20", "I21", "I24", "I25",
    ] {
        assert_ne!(advice::for_rule(id), unknown, "{id}");
    }
}

#[test]
fn a_disk_is_low_below_a_fraction_and_an_amount_of_free_space() {
    assert!(!is_low(0, 0), "the size is unknown");
    assert!(is_low(4 << 30, 100 << 30));
    assert!(!is_low(6 << 30, 100 << 30));
    assert!(!is_low(40 << 30, 10_000 << 30), "40 GiB is enough");
}

#[test]
fn the_page_has_services_findings_and_remedies() {
    let renderer = Renderer {
        colour: false,
        now: Timestamp::default(),
    };
    let page = render::render(&healthy_facts(), &[], &renderer);
    assert!(page.starts_with("the fleet is well\n"), "{page}");
    for part in [
        "rm-scheduler       leads  0.1.0",
        "allocations 0",
        "same",
        "10 hold",
        "4 healthy, 1 varied off, 1 drained or draining",
        "50 GiB of 100 GiB left here",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(
        page.lines().all(|line| line.chars().count() <= 120),
        "{page}"
    );

    let facts = facts_with(|it| first_service(it).status = Err("connection refused".to_owned()));
    let page = render::render(&facts, &evaluate_facts(&facts), &renderer);
    assert!(page.starts_with("1 thing needs you\n\n 1. job-converter does not answer"));
    assert!(
        page.contains("    do: start it again (`hayward run job-converter`"),
        "{page}"
    );

    let many = facts_with(|it| {
        let unhealthy = &mut it.nodes.as_mut().unwrap().unhealthy;
        unhealthy.extend((0..25).map(|number| UnhealthyNode {
            node: format!("n{number}"),
            problem: NodeProblem::Lost,
            detail: "silent".to_owned(),
        }));
    });
    let page = render::render(&many, &evaluate_facts(&many), &renderer);
    assert!(page.starts_with("1 thing needs you"), "{page}");
    let nodes = "25 nodes, of each: is lost; n0, n1, n2, n3, n4, …";
    assert!(page.contains(nodes), "{page}");
}
