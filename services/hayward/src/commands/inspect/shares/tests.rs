//! Tests the tables of `hayward shares`. The fleet has one pool of 30 quanta, of which 24 are
//! usable, two classes, and the user Ada with two jobs.

use hayward_rm_scheduler_api::policy::SharePolicy;
use hayward_rm_scheduler_api::shares::{CapParts, Idle, Turn, UserShare};
use hayward_vocabulary::{Timestamp, UserName, WorkId};

use super::*;

/// Returns a job with this many quanta in each process. Doubling reduces its cap from 40 processes
/// to 8, and it is due 4.
fn job_share(id: &str, quanta: u64, current: u64, leaving: u64) -> WorkShare {
    WorkShare {
        work: WorkId::new(id).unwrap(),
        kind: WorkKind::Job,
        order: quanta,
        wanted: 8,
        cap: CapParts {
            base: 40,
            doubling: Some(8),
            ..CapParts::default()
        },
        counted: 4,
        current,
        leaving,
        tally: tally(4 * quanta, (current + leaving) * quanta, leaving * quanta),
    }
}

fn tally(due: u64, held: u64, vacating: u64) -> Tally {
    Tally {
        due,
        held,
        vacating,
        ..Tally::default()
    }
}

fn pool_share() -> PoolShare {
    PoolShare {
        pool: "default".into(),
        tree: "default".into(),
        total: 30,
        lost: 2,
        offline: 0,
        blocked: 4,
        declined: 0,
        withheld: 0,
        usable: 24,
        held: 13,
        fixed: 0,
        over: 0,
        held_closed: 0,
        free: 11,
        idle: Idle {
            split: 3,
            unasked: 8,
            ..Idle::default()
        },
    }
}

fn priority_share() -> PriorityShare {
    PriorityShare {
        tree: Some("default".into()),
        priority: 10,
        policy: SharePolicy::FairShare,
        classes: vec!["high".into(), "low".into()],
        turn: Some(Turn {
            available: 24,
            taken: 13,
        }),
        tally: tally(12, 13, 1),
    }
}

fn class_share(name: &str, users: Vec<UserShare>) -> ClassShare {
    ClassShare {
        class: name.into(),
        tree: Some("default".into()),
        policy: SharePolicy::FairShare,
        priority: 10,
        weight: 100,
        given: 13,
        left: 1,
        tally: tally(12, 13, 1),
        users,
        others: None,
    }
}

#[test]
fn shares_are_listed_by_class_user_and_work() {
    let at = Timestamp::from_unix_ms(1_795_257_720_000);
    let ada = UserName::new("ada").unwrap();
    let user = |due, held, work| UserShare {
        user: ada.clone(),
        given: due,
        left: 0,
        tally: tally(due, held, 1),
        work,
    };
    let shares = Shares {
        round: 41,
        at,
        capacity: 24,
        held: 13,
        free: 11,
        pools: vec![pool_share()],
        elsewhere: 0,
        divided: Vec::new(),
        outside: Vec::new(),
        priorities: vec![priority_share()],
        unclassed: Tally {
            held: 2,
            ..Tally::default()
        },
        classes: vec![
            class_share(
                "high",
                vec![user(
                    12,
                    13,
                    vec![job_share("job_1", 1, 4, 1), job_share("job_2", 2, 4, 0)],
                )],
            ),
            class_share("low", Vec::new()),
        ],
        ledger: vec![LedgerLine {
            user: ada.clone(),
            class: "high".into(),
            due_quantum_ms: 120_000,
            received_quantum_ms: 118_000,
        }],
        ledger_of_others: Vec::new(),
        budgets: Budgets::default(),
    };
    insta::assert_snapshot!(render(
        &shares,
        &Renderer {
            colour: false,
            now: at.plus_ms(2_000)
        }
    ));
}

#[test]
fn preempted_quanta_are_shown_with_their_budget() {
    assert_eq!(preempted_text(&Budgets::default()), "");
    let budgets: Budgets = serde_json::from_value(serde_json::json!({
        "pools": [{"pool": "idle", "spent": 0}, {"pool": "busy", "allowed": 40, "spent": 7}],
        "users": [{"tree": "busy", "user": "ada", "spent": 7}],
    }))
    .unwrap();
    let expected = "\npreempted within the last hour, in quanta: pool busy 7 of 40, ada 7\n";
    assert_eq!(preempted_text(&budgets), expected);
}
