use hayward_service::health::Status;
use hayward_service::invariants::{Invariants, RuleStatus};
use hayward_vocabulary::Timestamp;
use hayward_vocabulary::invariant::Evidence;

use super::super::facts::{Blocked, Disk, Lag, NodeFacts, Replica, Unwell, Waiting};
use super::super::render;
use super::*;
use crate::output::Look;

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

fn well() -> Facts {
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
            off: 1,
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

fn unwell(what: Ailment) -> Facts {
    let mut facts = well();
    facts.nodes.as_mut().unwrap().unwell.push(Unwell {
        node: "n1".to_owned(),
        what,
        detail: "it says so".to_owned(),
    });
    facts
}

fn waits(ms: u64) -> Facts {
    let mut facts = well();
    facts.waiting = Ok(vec![Waiting {
        work: "job_1".to_owned(),
        user: "ann".to_owned(),
        since: Timestamp::default(),
        waits_ms: ms,
        reason: Some("no host is large enough".to_owned()),
    }]);
    facts
}

fn changed(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = well();
    change(&mut facts);
    facts
}

fn replica(facts: &mut Facts, status: Result<Status, String>) {
    let url = "http://127.0.0.1:2".to_owned();
    first(facts).replicas.push(Replica { url, status });
}

/// A fleet in which rule I2 is unchecked, by a service with this uptime.
fn unseen(uptime_ms: u64, change: impl FnOnce(&mut RuleStatus)) -> Facts {
    changed(|it| {
        first(it).status.as_mut().unwrap().uptime_ms = uptime_ms;
        let rule = &mut first(it).invariants.as_mut().unwrap().rules[0];
        rule.result = RuleResult::NotChecked;
        rule.checked_at = Timestamp::from_unix_ms(500_000);
        change(rule);
    })
}

fn first(facts: &mut Facts) -> &mut ServiceFacts {
    &mut facts.services[0]
}

/// Name, facts, expected findings.
type Row = (&'static str, Facts, Vec<(Kind, &'static str)>);

#[test]
#[expect(clippy::too_many_lines, reason = "a table is read as a whole")]
fn each_fact_has_its_findings() {
    let gone = || "connection refused".to_owned();
    let table: Vec<Row> = vec![
        ("well", well(), vec![]),
        (
            "one is away",
            changed(|it| first(it).status = Err(gone())),
            vec![(Kind::Away, "job-converter")],
        ),
        (
            "not ready, and so without invariants",
            changed(|it| {
                let service = first(it);
                service.invariants = Err("does not lead".to_owned());
                let status = service.status.as_mut().unwrap();
                status.ready = false;
                status.not_ready = vec!["on standby".to_owned()];
            }),
            vec![(Kind::NotReady, "job-converter")],
        ),
        (
            "a standby next to the leader",
            changed(|it| {
                let mut standby = status("job-converter");
                (standby.ready, standby.leader) = (false, false);
                replica(it, Ok(standby));
            }),
            vec![],
        ),
        (
            "R9: all of them wait for one decision",
            changed(|it| {
                for service in &mut it.services {
                    let status = service.status.as_mut().unwrap();
                    (status.ready, status.leader) = (false, false);
                    status.not_ready = vec![format!("{WENT_BACK}, and nothing is written: x")];
                    service.invariants = Err("read only".to_owned());
                }
            }),
            vec![(Kind::WentBack, "database")],
        ),
        (
            "R9: the same when all were down, and know nothing yet",
            changed(|it| {
                it.nodes = Ok(NodeFacts::default());
                for service in &mut it.services {
                    let status = service.status.as_mut().unwrap();
                    (status.ready, status.leader) = (false, false);
                    status.not_ready = vec![format!("{WENT_BACK}, and nothing is written: x")];
                    service.invariants = Err("read only".to_owned());
                    for lag in &mut service.lags {
                        (lag.stale, lag.silent_ms) = (true, None);
                    }
                }
            }),
            vec![(Kind::WentBack, "database")],
        ),
        (
            "a standby that is dead",
            changed(|it| replica(it, Err(gone()))),
            vec![(Kind::Away, "job-converter")],
        ),
        ("a rule not looked at yet", unseen(120_000, |_| ()), vec![]),
        (
            "a rule that is never looked at",
            unseen(120_001, |_| ()),
            vec![(Kind::Unseen, "I2")],
        ),
        (
            "one that was looked at lately",
            unseen(900_000, |it| {
                it.last_good_at = Some(Timestamp::from_unix_ms(380_000));
            }),
            vec![],
        ),
        (
            "one that was looked at long ago",
            unseen(900_000, |it| {
                it.last_good_at = Some(Timestamp::from_unix_ms(379_999));
            }),
            vec![(Kind::Unseen, "I2")],
        ),
        (
            "a blocklist that is switched off",
            unseen(900_000, |it| it.why = Some(BLOCKLIST_OFF.to_owned())),
            vec![],
        ),
        (
            "a result of a later version",
            unseen(1, |it| it.result = RuleResult::Unknown),
            vec![(Kind::Unseen, "I2")],
        ),
        (
            "a rule is broken",
            changed(|it| {
                let rules = &mut first(it).invariants.as_mut().unwrap().rules;
                rules[0].result = RuleResult::Violated;
                rules[0].violations = 12;
                rules[0].evidence = vec![Evidence::new("n1", "5 of 4 quanta")];
            }),
            vec![(Kind::Invariant, "I2")],
        ),
        (
            "may not look",
            changed(|it| first(it).invariants = Err("forbidden".to_owned())),
            vec![(Kind::Unseen, "job-converter")],
        ),
        (
            "a follower hears nothing",
            changed(|it| first(it).lags[0].stale = true),
            vec![(Kind::Follower, "job-converter")],
        ),
        (
            "or has not for long",
            changed(|it| first(it).lags[0].silent_ms = Some(25_001)),
            vec![(Kind::Follower, "job-converter")],
        ),
        (
            "two versions",
            changed(|it| first(it).status.as_mut().unwrap().version = "0.2.0".to_owned()),
            vec![(Kind::Versions, "versions")],
        ),
        (
            "a clock that is off",
            changed(|it| first(it).clock_ahead_ms = Some(-5_001)),
            vec![(Kind::Clock, "job-converter")],
        ),
        (
            "one that is not off enough",
            changed(|it| first(it).clock_ahead_ms = Some(5_000)),
            vec![],
        ),
        (
            "an insecure mode",
            changed(|it| {
                let status = first(it).status.as_mut().unwrap();
                status.insecure_modes.push("plain http".to_owned());
            }),
            vec![(Kind::Insecure, "insecure modes")],
        ),
        (
            "no nodes",
            changed(|it| it.nodes = Ok(NodeFacts::default())),
            vec![(Kind::Node, "nodes")],
        ),
        (
            "a lost node",
            unwell(Ailment::Lost),
            vec![(Kind::Node, "n1")],
        ),
        (
            "two agents",
            unwell(Ailment::Twins),
            vec![(Kind::Node, "n1")],
        ),
        (
            "a full disk",
            unwell(Ailment::DiskLow),
            vec![(Kind::Node, "n1")],
        ),
        (
            "a drain that failed",
            unwell(Ailment::DrainFailed),
            vec![(Kind::Node, "n1")],
        ),
        ("work that waits a day", waits(LONG_MS), vec![]),
        (
            "and longer",
            waits(LONG_MS + 1),
            vec![(Kind::Waiting, "job_1")],
        ),
        (
            "a disk here",
            changed(|it| it.disk.as_mut().unwrap().free_bytes = 1 << 30),
            vec![(Kind::Disk, "state directory")],
        ),
        ("no disk here", changed(|it| it.disk = None), vec![]),
        (
            "a list of a service that is there",
            changed(|it| it.nodes = Err("forbidden".to_owned())),
            vec![(Kind::Unseen, "node-status")],
        ),
        (
            "a list of one that is away is no second finding",
            changed(|it| {
                it.services[3].status = Err(gone());
                it.nodes = Err(gone());
            }),
            vec![(Kind::Away, "node-status")],
        ),
        (
            "a block is no finding",
            changed(|it| {
                it.blocked = Ok(vec![Blocked {
                    node: "n1".to_owned(),
                    cause: "disk".to_owned(),
                    automatic: true,
                    on_trial: false,
                }]);
            }),
            vec![],
        ),
        (
            "the gravest first",
            changed(|it| {
                first(it).clock_ahead_ms = Some(60_000);
                it.services[1].status = Err(gone());
            }),
            vec![(Kind::Away, "rm-scheduler"), (Kind::Clock, "job-converter")],
        ),
    ];
    for (name, facts, expected) in table {
        let found = needs(&facts);
        let short: Vec<(Kind, &str)> = found
            .iter()
            .map(|need| (need.kind, need.subject.as_str()))
            .collect();
        assert_eq!(short, expected, "{name}: {found:#?}");
        for need in found {
            assert!(!need.what.is_empty() && !need.action.is_empty(), "{name}");
        }
    }
}

#[test]
fn every_rule_has_advice_of_its_own() {
    let unknown = advice::for_rule("I99");
    for id in [
        "I2", "I5", "I10", "I13", "I14", "I16", "I20", "I21", "I24", "I25",
    ] {
        assert_ne!(advice::for_rule(id), unknown, "{id}");
    }
}

#[test]
fn a_disk_is_low_by_part_and_by_amount() {
    assert!(!is_low(0, 0), "nothing is known");
    assert!(is_low(4 << 30, 100 << 30));
    assert!(!is_low(6 << 30, 100 << 30));
    assert!(!is_low(40 << 30, 10_000 << 30), "that is plenty");
}

#[test]
fn the_page_has_services_findings_and_remedies() {
    let look = Look {
        colour: false,
        now: Timestamp::default(),
    };
    let page = render::page(&well(), &[], &look);
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

    let facts = changed(|it| first(it).status = Err("connection refused".to_owned()));
    let page = render::page(&facts, &needs(&facts), &look);
    assert!(page.starts_with("1 thing needs you\n\n 1. job-converter does not answer"));
    assert!(
        page.contains("    do: start it again (`hayward run job-converter`"),
        "{page}"
    );

    let many = changed(|it| {
        let unwell = &mut it.nodes.as_mut().unwrap().unwell;
        unwell.extend((0..25).map(|at| Unwell {
            node: format!("n{at}"),
            what: Ailment::Lost,
            detail: "silent".to_owned(),
        }));
    });
    let page = render::page(&many, &needs(&many), &look);
    assert!(page.starts_with("1 thing needs you"), "{page}");
    let nodes = "25 nodes, of each: is lost; n0, n1, n2, n3, n4, …";
    assert!(page.contains(nodes), "{page}");
}
