//! Tests of the setting `grow_into_free_space`.

use super::fixture::{Fixture, share};
use crate::Plan;

/// Returns the number of processes of a job after a plan.
fn processes(plan: &Plan, id: &str) -> u64 {
    share(plan, id).current
}

/// Setting `grow_into_free_space` (TC-10).
#[test]
fn a_job_of_unknown_pace_fills_the_free_space_in_one_round() {
    let run = |grow| {
        let mut fixture = Fixture::new().nodes(&[8, 4]);
        fixture.snapshot.tunables.settings.grow_into_free_space = grow;
        let job = fixture.job("job", "a", 1);
        (job.task_ms, job.remaining_tasks) = (None, 11);
        let plan = fixture.step();
        assert_eq!(share(&plan, "job").tally.lent, if grow { 9 } else { 0 });
        processes(&plan, "job")
    };
    assert_eq!((run(false), run(true)), (2, 11));
}

/// Setting `grow_into_free_space`: the processes beyond the limits of growth are lent (TC-10).
#[test]
fn space_that_a_job_grew_into_is_given_up_for_other_work() {
    let mut fixture = Fixture::new().nodes(&[8]);
    fixture.snapshot.tunables.settings.grow_into_free_space = true;
    let job = fixture.job("first", "a", 1);
    (job.task_ms, job.remaining_tasks) = (None, 100);
    assert_eq!(processes(&fixture.step(), "first"), 8);
    let job = fixture.job("second", "b", 1);
    (job.task_ms, job.remaining_tasks) = (None, 100);
    let counts: Vec<(u64, u64)> = (0..4)
        .map(|_| {
            let plan = fixture.step();
            (processes(&plan, "first"), processes(&plan, "second"))
        })
        .collect();
    assert!(
        counts.iter().any(|(_, second)| *second >= 2),
        "the second job starts: {counts:?}"
    );
    assert!(fixture.step().vacates.len() <= 2, "the fleet is quiet");
}
