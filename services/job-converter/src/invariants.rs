//! Invariants that job-converter checks. No task is lost or counted twice, and gangs hold their
//! minimum or nothing. No transitional state outlives its deadline, and limits hold.

use std::collections::BTreeMap;

use hayward_job_converter_application_protocol::core::IncompleteGang;
use hayward_job_converter_application_protocol::ids::AppId;
use hayward_job_converter_application_protocol::{frontend, task};
use hayward_vocabulary::invariant_finding::{
    Ages, Evidence, Finding, Inquiry, Rule, SWEEP_MS, TimedState,
};
use hayward_vocabulary::{Timestamp, WorkId};

const TASKS: Rule = Rule {
    id: "I5",
    title: "no task of a job is lost or counted twice",
};
const GANGS: Rule = Rule {
    id: "I13",
    title: "a gang has its minimum, or holds nothing",
};
/// Deadline of transitional states in milliseconds. It covers a node that has to be given up first.
const TRANSITION_LIMIT_MS: u64 = 600_000;

/// Age of applications and tasks in transitional states, updated by each check.
pub type TransitionalStates = Ages<(String, Option<String>), &'static str>;
/// Age of incomplete gangs without a repair deadline, updated by each check.
pub type IncompleteGangs = Ages<AppId, ()>;

/// Reports faults in the task counts of each job (I5).
pub fn check_task_counts<'a>(jobs: impl Iterator<Item = (&'a WorkId, Option<String>)>) -> Finding {
    let mut inquiry = Inquiry::new(TASKS);
    for (job, fault) in jobs {
        inquiry.examine(fault.map(|fault| Evidence::new(job, fault)));
    }
    inquiry.finish()
}

/// Reports incomplete gangs. A gang that lost a member is repaired or released within the time its
/// policy gives. A gang that never formed, or has no deadline, may be incomplete for one sweep at
/// most (I13).
pub fn check_gangs<'a>(
    gangs: impl Iterator<Item = (&'a AppId, Option<IncompleteGang>)>,
    incomplete_gangs: &mut IncompleteGangs,
    now: Timestamp,
    now_ms: u64,
) -> Finding {
    let gangs: Vec<_> = gangs.collect();
    let without_deadline = gangs.iter().filter_map(|(id, incomplete)| {
        let incomplete = incomplete.as_ref()?;
        let has_deadline = incomplete.formed && incomplete.repair_deadline.is_some();
        (!has_deadline).then(|| (AppId::clone(id), ()))
    });
    incomplete_gangs.record(now_ms, without_deadline);
    let since: BTreeMap<&AppId, u64> = incomplete_gangs
        .ages(now_ms)
        .map(|(id, (), age)| (id, age))
        .collect();
    let mut inquiry = Inquiry::new(GANGS);
    for (id, incomplete) in &gangs {
        let fault = incomplete.and_then(|incomplete| {
            let late_ms = incomplete
                .repair_deadline
                .map_or(0, |until| now.ms_since(until));
            let late_ms = since.get(id).copied().unwrap_or(late_ms);
            let verb = if incomplete.formed {
                "lost"
            } else {
                "never had"
            };
            let (has, lacks) = (incomplete.live_members, incomplete.missing_members);
            let detail = format!(
                "its gang has {has} members and {verb} {lacks}, and is neither repaired nor \
                 released"
            );
            let evidence = Evidence::new(id.as_str(), detail)
                .with_number("has_members", has)
                .with_number("lacks_members", lacks)
                .with_number("late_ms", late_ms);
            (late_ms > SWEEP_MS).then_some(evidence)
        });
        inquiry.examine(fault);
    }
    inquiry.finish()
}

/// Returns the transitional state of an application. Waiting for capacity has no deadline.
pub fn transitional_state(state: frontend::State) -> Option<&'static str> {
    match state {
        frontend::State::Submitted | frontend::State::Recovering => Some("waits for its core"),
        frontend::State::Failing => Some("is failing"),
        frontend::State::Killing => Some("is being killed"),
        _ => None,
    }
}

/// Returns the transitional state of a task.
pub fn task_transitional_state(state: task::State) -> Option<&'static str> {
    (state == task::State::Killing).then_some("is being ended")
}

/// Reports states that outlived their deadline (I24).
pub fn overdue_states(
    transitional_states: &TransitionalStates,
    now_ms: u64,
    grace_ms: u64,
) -> impl Iterator<Item = TimedState<String>> {
    let limit = TRANSITION_LIMIT_MS.saturating_add(grace_ms);
    let ages = transitional_states.ages(now_ms);
    ages.map(move |((application, task), state, age)| TimedState {
        subject: match task {
            Some(task) => format!("{application}/{task}"),
            None => application.clone(),
        },
        state,
        late_ms: age.saturating_sub(limit),
        cause: None,
    })
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::invariant_finding::{Outcome, check_deadlines};

    use super::*;

    /// A fault in one job is reported with the id of that job (I5).
    #[test]
    fn a_job_with_wrong_task_counts_violates_the_invariant() {
        let (first_job, second_job) = ("job_1".parse().unwrap(), "job_2".parse().unwrap());
        assert!(check_task_counts([(&first_job, None)].into_iter()).holds());
        let broken = Some("of 2 tasks 1 wait, 0 are leased and 0 are done".to_owned());
        let found = check_task_counts([(&first_job, None), (&second_job, broken)].into_iter());
        let Outcome::Violated { count: 1, evidence } = found.outcome else {
            panic!("a task is lost");
        };
        assert_eq!(evidence[0].subject, "job_2");
    }

    /// A gang below its minimum is a fault only after the repair time (I13).
    #[test]
    fn an_incomplete_gang_has_the_repair_time_of_its_policy() {
        let id = AppId::new("app_1").unwrap();
        let start = Timestamp::from_unix_ms(1_000_000);
        let incomplete = |formed, deadline_ms: Option<u64>| IncompleteGang {
            live_members: 1,
            missing_members: 2,
            formed,
            repair_deadline: deadline_ms.map(|ms| start.plus_ms(ms)),
        };
        let mut incomplete_gangs = IncompleteGangs::default();
        let mut check = |incomplete, ms| {
            let now = start.plus_ms(ms);
            check_gangs(
                [(&id, incomplete)].into_iter(),
                &mut incomplete_gangs,
                now,
                ms,
            )
        };
        // The repair may take one hour, and the release one sweep.
        let with_deadline = Some(incomplete(true, Some(3_600_000)));
        assert!(check(with_deadline, 200_000).holds() && check(with_deadline, 3_660_000).holds());
        let Outcome::Violated { evidence, .. } = check(with_deadline, 3_660_001).outcome else {
            panic!("the gang was neither repaired nor released");
        };
        assert_eq!(evidence[0].subject, "app_1");
        // These gangs have no deadline, so one check alone finds no fault.
        for no_deadline in [incomplete(true, None), incomplete(false, None)] {
            assert!(check(None, 4_000_000).holds(), "complete");
            assert!(check(Some(no_deadline), 4_000_001).holds());
            assert!(check(Some(no_deadline), 4_060_001).holds());
            assert!(
                !check(Some(no_deadline), 4_060_002).holds(),
                "{no_deadline:?}"
            );
        }
    }

    /// No transitional state outlives its deadline (I24).
    #[test]
    fn an_application_that_does_not_end_violates_the_invariant() {
        let mut transitional_states = TransitionalStates::default();
        let key = || ("app_1".to_owned(), Some("t1".to_owned()));
        let killing = task_transitional_state(task::State::Killing).unwrap();
        transitional_states.record(1_000, [(key(), killing)]);
        let end = 1_000 + TRANSITION_LIMIT_MS + 5_000 + SWEEP_MS;
        assert!(check_deadlines(overdue_states(&transitional_states, end, 5_000)).holds());
        let Outcome::Violated { evidence, .. } =
            check_deadlines(overdue_states(&transitional_states, end + 1, 5_000)).outcome
        else {
            panic!("the task is killed too late");
        };
        assert_eq!(evidence[0].subject, "app_1/t1");
        transitional_states.record(end, [(key(), "is something else")]);
        assert!(check_deadlines(overdue_states(&transitional_states, end + 1, 5_000)).holds());
    }

    #[test]
    fn waiting_for_capacity_has_no_deadline() {
        for state in frontend::State::ALL {
            let waits = matches!(
                state,
                frontend::State::Accepted | frontend::State::Reserving | frontend::State::Running
            );
            assert!(!waits || transitional_state(state).is_none(), "{state:?}");
        }
        assert!(transitional_state(frontend::State::Killing).is_some());
    }
}
