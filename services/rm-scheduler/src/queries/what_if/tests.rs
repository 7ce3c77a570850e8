//! Tests with a fleet of two nodes of four quanta, without work. The callers are an operator, and
//! the submitter ann, who is in the group `dev`.

use std::sync::Arc;

use hayward_rm_scheduler_api::policy::Policy;
use hayward_rm_scheduler_api::what_if::WhatIf;
use hayward_rm_scheduler_capacity::CompositePlanner;
use hayward_rm_scheduler_domain::forecast::{compare, stop_after};
use hayward_rm_scheduler_domain::snapshot::Node;

use super::*;
use crate::command::PinnedWork;

fn operator() -> Requester {
    Requester {
        groups: Vec::new(),
        user: Some("boss".parse().unwrap()),
        sees_all_users: true,
        tenant: None,
    }
}

fn ann() -> Requester {
    Requester {
        groups: vec!["dev".to_owned()],
        user: Some("ann".parse().unwrap()),
        sees_all_users: false,
        tenant: None,
    }
}

/// Returns a copy of a fleet with the shipped policy and two nodes of four quanta.
fn fleet_copy() -> FleetCopy {
    let mut snapshot = Snapshot::empty();
    let rules = Rules::new(&Policy::default());
    rules.apply_to(&mut snapshot);
    for name in ["n1", "n2"] {
        let node = Node {
            pool: "default".into(),
            capacity: Size::memory(4 * GIB),
            takes_work: true,
            lost: false,
            offline: false,
            block: None,
            labels: BTreeMap::new(),
        };
        snapshot.nodes.insert(name.parse().unwrap(), node);
    }
    FleetCopy::new(&snapshot, Arc::new(rules))
}

fn parse(json: &str) -> WhatIf {
    serde_json::from_str(json).unwrap()
}

/// Returns the pointers of the faults of a query.
fn fault_pointers(json: &str) -> Vec<String> {
    let faults = forecast_input(&parse(json), &operator(), &fleet_copy()).unwrap_err();
    faults.into_iter().map(|fault| fault.pointer).collect()
}

#[test]
fn all_faults_of_a_request_are_reported_at_once() {
    let found = fault_pointers(
        r#"{"submissions": [
              {"processes": 0, "size": {"memory_bytes": 18446744073709551615}},
              {"kind": "service", "tasks": 3},
              {"name": "same", "user": "ada"}, {"name": "same", "user": "ada"}],
            "drain": ["n1", "n9"], "lose": ["n8"], "withdraw": ["job_x"], "rounds": 51,
            "add_nodes": [{"name": "n2", "size": {}},
                          {"pool": "nowhere", "count": 0, "size": {}}]}"#,
    );
    assert_eq!(
        found,
        [
            "/submissions/0/processes",
            "/submissions/0/size/memory_bytes",
            "/submissions/1/kind",
            "/submissions/3/name",
            "/withdraw/0",
            "/drain/1",
            "/lose/0",
            "/add_nodes/0/name",
            "/add_nodes/1/count",
            "/add_nodes/1/pool",
            "/rounds",
        ]
    );
    assert_eq!(
        fault_pointers(r#"{"add_nodes": [{"count": 10001, "size": {}}]}"#),
        ["/add_nodes"]
    );
}

#[test]
fn faults_of_a_policy_have_pointers_below_it() {
    let fault = Fault {
        pointer: "/classes/low/weight".into(),
        detail: "must be at least 1".into(),
    };
    let copy = FleetCopy {
        preview: Some(Err(vec![fault])),
        ..fleet_copy()
    };
    let found = forecast_input(&WhatIf::default(), &operator(), &copy).unwrap_err();
    assert_eq!(found[0].pointer, "/policy/classes/low/weight");
}

#[test]
fn work_bound_to_a_drained_node_may_move_elsewhere() {
    let mut snapshot = Snapshot::clone(&fleet_copy().snapshot);
    let submission = &parse(r#"{"submissions": [{}]}"#).submissions[0];
    for (work, host) in [("svc_a.0", "n1"), ("svc_b.0", "n2")] {
        let mut wanted = submitted_demand(submission, "ann".parse().unwrap());
        wanted.node_list = [host.parse().unwrap()].into();
        snapshot.demand.insert(work.parse().unwrap(), wanted);
    }
    let pinned = |work: &str, host: &str| PinnedWork {
        work: work.parse().unwrap(),
        host: host.parse().unwrap(),
        machines: BTreeSet::new(),
    };
    let copy = FleetCopy {
        snapshot: Arc::new(snapshot),
        pinned: Arc::new(vec![pinned("svc_a.0", "n1"), pinned("svc_b.0", "n2")]),
        ..fleet_copy()
    };
    let input = forecast_input(&parse(r#"{"drain": ["n1"]}"#), &operator(), &copy).unwrap();
    let node_list_length = |work: &str| {
        let work: WorkId = work.parse().unwrap();
        input.changed.demand[&work].node_list.len()
    };
    // An empty list allows every node.
    assert_eq!(node_list_length("svc_a.0"), 0);
    assert_eq!(node_list_length("svc_b.0"), 1);
}

#[test]
fn a_submitter_may_query_only_changes_of_its_own_work() {
    let pointers = |json: &str| {
        let faults = forbidden_fields(&parse(json), &ann());
        faults
            .into_iter()
            .map(|fault| fault.pointer)
            .collect::<Vec<_>>()
    };
    let all = r#"{"drain": ["n1"], "lose": ["n1"], "add_nodes": [{"size": {}}],
                  "submissions": [{}, {"user": "ann"}, {"user": "ben"}]}"#;
    assert_eq!(
        pointers(all),
        ["/drain", "/lose", "/add_nodes", "/submissions/2/user"]
    );
    assert!(forbidden_fields(&parse(all), &operator()).is_empty());
    assert!(pointers(r#"{"submissions": [{}, {"user": "ann"}]}"#).is_empty());

    let mut snapshot = Snapshot::clone(&fleet_copy().snapshot);
    for (work, user) in [("job_a", "ann"), ("job_b", "ben")] {
        let demand = submitted_demand(
            &parse(r#"{"submissions": [{}]}"#).submissions[0],
            user.parse().unwrap(),
        );
        snapshot.demand.insert(work.parse().unwrap(), demand);
    }
    let copy = FleetCopy {
        snapshot: Arc::new(snapshot),
        ..fleet_copy()
    };
    let withdraw = parse(r#"{"withdraw": ["job_a", "job_b"]}"#);
    let found = forecast_input(&withdraw, &ann(), &copy).unwrap_err();
    assert_eq!(found[0].pointer, "/withdraw/1");
    assert_eq!(found.len(), 1);
}

#[test]
fn a_submitter_sees_its_own_work_and_other_users_as_sums() {
    // The last submission does not fit on any node, so it waits.
    let query = parse(
        r#"{"submissions": [{"user": "ann", "processes": 2}, {"user": "ben", "processes": 2},
                            {"user": "ben", "size": {"memory_bytes": 99000000000}}]}"#,
    );
    let copy = fleet_copy();
    let input = forecast_input(&query, &operator(), &copy).unwrap();
    let forecast = compare(
        &CompositePlanner,
        &copy.snapshot,
        input.changed,
        &input.task_ms,
        &mut stop_after(10),
    );
    let (all, own) = (
        to_response(&forecast, &operator()),
        to_response(&forecast, &ann()),
    );
    let users = |forecast: &hayward_rm_scheduler_api::what_if::Forecast| {
        let starts = forecast.starts.iter().map(|it| it.user.to_string());
        starts
            .collect::<BTreeSet<String>>()
            .into_iter()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (users(&all), users(&own)),
        (vec!["ann".into(), "ben".into()], vec!["ann".into()])
    );
    assert_eq!((all.waits.len(), own.waits.len()), (1, 0));
    assert_eq!((all.moves.len(), own.moves.len()), (2, 1));
    assert_eq!(all.shares.held, own.shares.held);
    // Ann sees ben only in a sum, and the totals of each class are the same (S12).
    for (all, visible) in all.shares.classes.iter().zip(&own.shares.classes) {
        assert!(visible.users.iter().all(|it| it.user.as_str() == "ann"));
        let others = visible.others.map_or(0, |it| it.due.with);
        let known: u64 = visible.users.iter().map(|it| it.due.with).sum();
        assert_eq!((known + others, visible.due), (all.due.with, all.due));
    }
    assert_eq!(all.shares.held.with, 4);
}

#[test]
fn a_service_becomes_its_instances_and_work_without_a_name_is_numbered() {
    let query = parse(
        r#"{"submissions": [{"processes": 3}, {"kind": "service", "processes": 2},
                            {"kind": "reservation"}],
            "add_nodes": [{"count": 2, "size": {"memory_bytes": 8589934592}},
                          {"name": "big", "size": {"memory_bytes": 8589934592}}]}"#,
    );
    let input = forecast_input(&query, &operator(), &fleet_copy()).unwrap();
    let work: Vec<&str> = input.changed.demand.keys().map(WorkId::as_str).collect();
    let expected = [
        "job_what-if-1",
        "rsv_what-if-3",
        "svc_what-if-2.0",
        "svc_what-if-2.1",
    ];
    assert_eq!(work, expected);
    let job = &input.changed.demand["job_what-if-1"];
    assert_eq!((job.max_processes, job.remaining_tasks), (3, 3_000));
    let nodes: Vec<&str> = input.changed.nodes.keys().map(NodeName::as_str).collect();
    assert_eq!(nodes, ["big", "n1", "n2", "what-if-1", "what-if-2"]);
    assert!(
        input
            .changed
            .nodes
            .values()
            .all(|node| node.pool == "default")
    );
}

/// The groups of the caller come from its token. The groups of another user come from the newest
/// work of that user in a queue.
#[test]
fn a_submission_has_the_groups_of_its_user() {
    let groups = |requester: &Requester, user: &str, copy: &FleetCopy| {
        let query = parse(&format!(
            r#"{{"submissions": [{{"user": "{user}", "queue": "root.a"}}]}}"#
        ));
        let input = forecast_input(&query, requester, copy).unwrap();
        let mut demands = input.changed.demand.values();
        let demand = demands.find(|it| it.user.as_str() == user && it.max_processes == 1);
        demand.unwrap().queued.as_ref().unwrap().groups.clone()
    };
    let mut snapshot = Snapshot::clone(&fleet_copy().snapshot);
    for (submitted_ms, work, group) in [(1, "job_old", "night"), (2, "job_new", "ops")] {
        let submission = Submission {
            queue: Some("root.a".to_owned()),
            processes: Some(9),
            ..serde_json::from_str("{}").unwrap()
        };
        let mut known = submitted_demand(&submission, "ben".parse().unwrap());
        known.submitted_at = hayward_vocabulary::Timestamp::from_unix_ms(submitted_ms);
        known.queued.as_mut().unwrap().groups = vec![group.to_owned()];
        snapshot.demand.insert(work.parse().unwrap(), known);
    }
    let copy = FleetCopy::new(&snapshot, Arc::new(Rules::new(&Policy::default())));
    assert_eq!(groups(&ann(), "ann", &copy), ["dev"]);
    assert_eq!(groups(&operator(), "ben", &copy), ["ops"]);
    assert!(groups(&operator(), "ann", &copy).is_empty());
}
