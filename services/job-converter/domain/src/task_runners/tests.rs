use proptest::prelude::*;

use super::*;

fn allocation(number: u32) -> AllocationId {
    AllocationId::new(format!("alc_{number}")).unwrap()
}

fn demand(slots: u64, idle: u64, wanted: u64) -> LeaseDemand {
    LeaseDemand {
        slots,
        idle,
        wanted,
    }
}

/// Records a request of a runner with this mean duration of a run.
fn add_runner(runners: &mut TaskRunners, number: u32, slots: u64, mean_run_us: Option<u64>) {
    runners.record_request(&allocation(number), demand(slots, 0, 0), 1);
    if let Some(mean_us) = mean_run_us {
        runners.record_run(&allocation(number), mean_us);
    }
}

#[test]
fn a_runner_of_unknown_pace_gets_one_task_for_each_idle_slot() {
    let mut runners = TaskRunners::default();
    add_runner(&mut runners, 1, 4, None);
    let count = |idle, waiting| {
        runners.lease_count(
            &allocation(1),
            demand(4, idle, idle + 256),
            4 - idle,
            waiting,
        )
    };
    assert_eq!(count(4, 1_000), 4);
    assert_eq!(count(1, 1_000), 1);
    assert_eq!(count(4, 3), 3);
    assert_eq!(count(0, 1_000), 0);
}

#[test]
fn a_runner_of_long_tasks_gets_no_reserve() {
    let mut runners = TaskRunners::default();
    add_runner(&mut runners, 1, 1, Some(251_000));
    assert_eq!(
        runners.lease_count(&allocation(1), demand(1, 1, 257), 0, 1_000),
        1
    );
}

#[test]
fn the_reserve_is_what_starts_within_the_horizon() {
    let mut runners = TaskRunners::default();
    add_runner(&mut runners, 1, 2, Some(100_000));
    // Two slots start 5 tasks of 100 ms within 250 ms.
    assert_eq!(
        runners.lease_count(&allocation(1), demand(2, 1, 257), 1, 10_000),
        6
    );
    add_runner(&mut runners, 2, 1, Some(100));
    assert_eq!(
        runners.lease_count(&allocation(2), demand(1, 0, 10_000), 1, 1_000_000),
        MAX_RESERVE
    );
}

#[test]
fn reserves_shrink_towards_the_end_of_the_job() {
    let mut runners = TaskRunners::default();
    (1..=4).for_each(|number| add_runner(&mut runners, number, 1, Some(100)));
    let reserve = |waiting| runners.lease_count(&allocation(1), demand(1, 0, 256), 1, waiting);
    assert_eq!(reserve(400), 50);
    assert_eq!(reserve(16), 2);
    assert_eq!(reserve(7), 0);
}

#[test]
fn while_another_runner_has_an_idle_slot_nothing_is_reserved() {
    let mut runners = TaskRunners::default();
    add_runner(&mut runners, 1, 1, Some(100));
    add_runner(&mut runners, 2, 1, Some(100));
    runners.record_response(&allocation(2), true);
    let reserve =
        |runners: &TaskRunners| runners.lease_count(&allocation(1), demand(1, 0, 256), 1, 10_000);
    assert_eq!(reserve(&runners), 0);
    runners.remove(&allocation(2));
    assert_eq!(reserve(&runners), 256);
}

#[test]
fn reserved_tasks_count_towards_the_reserve() {
    let mut runners = TaskRunners::default();
    add_runner(&mut runners, 1, 1, Some(10_000));
    let count = |leased| runners.lease_count(&allocation(1), demand(1, 0, 256), leased, 10_000);
    // One slot starts 25 tasks of 10 ms within 250 ms.
    assert_eq!((count(1), count(11), count(26), count(90)), (25, 15, 0, 0));
}

#[test]
fn an_outdated_request_is_recognised() {
    let mut runners = TaskRunners::default();
    assert!(runners.record_request(&allocation(1), demand(1, 1, 1), 2));
    assert!(!runners.record_request(&allocation(1), demand(1, 1, 1), 1));
    assert!(runners.record_request(&allocation(1), demand(1, 1, 1), 2));
    // A runner that falls back to requests without numbers is not late.
    assert!(runners.record_request(&allocation(1), demand(1, 1, 1), 0));
}

#[test]
fn the_start_of_a_running_task_is_recorded_once() {
    let mut runners = TaskRunners::default();
    add_runner(&mut runners, 1, 1, None);
    let running = |started_at_ms| {
        vec![RunningTask {
            task: 7,
            started_at_ms,
        }]
    };
    assert!(runners.set_running(&allocation(1), running(100)));
    assert!(!runners.set_running(&allocation(1), running(103)));
    assert_eq!(runners.running(&allocation(1)), running(100));
}

proptest! {
    /// No lease exceeds what waits or what is wanted, and idle slots always come first.
    #[test]
    fn a_lease_serves_idle_slots_and_never_exceeds_the_demand(
        mean_runs_us in prop::collection::vec(prop::option::of(1..1_000_000_u64), 1..6),
        slots in 1..8_u64,
        idle in 0..8_u64,
        reserve in 0..1_000_u64,
        waiting in 0..5_000_u64,
        other_is_idle: bool,
    ) {
        let mut runners = TaskRunners::default();
        for (number, mean_run_us) in (0..).zip(&mean_runs_us) {
            add_runner(&mut runners, number, slots, *mean_run_us);
        }
        let last = u32::try_from(mean_runs_us.len() - 1).unwrap();
        runners.record_response(&allocation(last), other_is_idle);
        let idle = idle.min(slots);
        let demand = demand(slots, idle, idle + reserve);
        let count = runners.lease_count(&allocation(0), demand, slots - idle, waiting);
        prop_assert!(count <= waiting && count <= demand.wanted);
        prop_assert!(count >= idle.min(waiting));
        let granted_reserve = count - idle.min(waiting);
        prop_assert!(granted_reserve <= MAX_RESERVE);
        let job_slots = slots * mean_runs_us.len() as u64;
        prop_assert!(granted_reserve * job_slots * 2 <= waiting);
        if other_is_idle && last > 0 {
            prop_assert_eq!(granted_reserve, 0);
        }
    }
}
