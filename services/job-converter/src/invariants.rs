//! The invariants that job-converter can see (section 1 of the reliability rules): that no task is
//! lost or counted twice, that nothing outlives its deadline, and its limits.

use hayward_job_converter_applications::{front, task};
use hayward_publication::Handle;
use hayward_publication::invariants::Look;
use hayward_service::invariants::Watch;
use hayward_vocabulary::WorkId;
use hayward_vocabulary::invariant::{Ages, Evidence, Finding, Inquiry, Rule, Transit};

use crate::ledger::Command;

const TASKS: Rule = Rule {
    id: "I5",
    title: "no task of a job is lost or counted twice",
};
/// What is told to end, or waits for the core, is done with it sooner, also where its node has to
/// be given up first.
const SOON_MS: u64 = 600_000;

/// How applications and tasks in transit are, from look to look.
pub type Stages = Ages<(String, Option<String>), &'static str>;

pub fn watch(handle: &Handle<Command>) -> Watch {
    let look = Look {
        handle: handle.clone(),
        command: Command::Invariants,
    };
    Watch::new(crate::NAME, look)
}

/// I5, as far as it can be seen here: of each job, what is wrong with its tasks.
pub fn no_task_is_lost<'a>(jobs: impl Iterator<Item = (&'a WorkId, Option<String>)>) -> Finding {
    let mut inquiry = Inquiry::into(TASKS);
    for (job, fault) in jobs {
        inquiry.examine(fault.map(|fault| Evidence::new(job, fault)));
    }
    inquiry.end()
}

/// The states of an application that have to end by themselves. That it waits for room has no
/// deadline.
pub fn transit(state: front::State) -> Option<&'static str> {
    match state {
        front::State::Submitted | front::State::Recovering => Some("waits for its core"),
        front::State::Failing => Some("is failing"),
        front::State::Killing => Some("is being killed"),
        _ => None,
    }
}

/// Of a task: told to end.
pub fn task_transit(state: task::State) -> Option<&'static str> {
    (state == task::State::Killing).then_some("is told to end")
}

/// I24: what has been in transit for so long.
pub fn late(stages: &Stages, now_ms: u64, grace_ms: u64) -> impl Iterator<Item = Transit<String>> {
    let limit = SOON_MS.saturating_add(grace_ms);
    let ages = stages.ages(now_ms);
    ages.map(move |((application, task), state, age)| Transit {
        subject: match task {
            Some(task) => format!("{application}/{task}"),
            None => application.clone(),
        },
        state,
        late_ms: age.saturating_sub(limit),
        why: None,
    })
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::invariant::{Outcome, SWEEP_MS, mortal};

    use super::*;

    #[test]
    fn i5_a_job_whose_tasks_do_not_add_up() {
        let (one, other) = ("job_1".parse().unwrap(), "job_2".parse().unwrap());
        assert!(no_task_is_lost([(&one, None)].into_iter()).holds());
        let broken = Some("of 2 tasks 1 wait, 0 are leased and 0 are done".to_owned());
        let found = no_task_is_lost([(&one, None), (&other, broken)].into_iter());
        let Outcome::Violated { count: 1, evidence } = found.outcome else {
            panic!("a task is lost");
        };
        assert_eq!(evidence[0].subject, "job_2");
    }

    #[test]
    fn i24_an_application_that_does_not_end() {
        let mut stages = Stages::default();
        let key = || ("app_1".to_owned(), Some("t1".to_owned()));
        let killing = task_transit(task::State::Killing).unwrap();
        stages.look(1_000, [(key(), killing)]);
        let end = 1_000 + SOON_MS + 5_000 + SWEEP_MS;
        assert!(mortal(late(&stages, end, 5_000)).holds());
        let Outcome::Violated { evidence, .. } = mortal(late(&stages, end + 1, 5_000)).outcome
        else {
            panic!("it is late");
        };
        assert_eq!(evidence[0].subject, "app_1/t1");
        stages.look(end, [(key(), "is something else")]);
        assert!(mortal(late(&stages, end + 1, 5_000)).holds());
    }

    #[test]
    fn waiting_for_room_has_no_deadline() {
        for state in front::State::ALL {
            let waits = matches!(
                state,
                front::State::Accepted | front::State::Reserving | front::State::Running
            );
            assert!(!waits || transit(state).is_none(), "{state:?}");
        }
        assert!(transit(front::State::Killing).is_some());
    }
}
