//! Tests that the usage of runs is stored, shown and summed (TC-163).

use hayward_job_converter_api::tasks::{TaskHistory, TaskReport};
use hayward_job_converter_api::usage::{RunUsage, UsageSource};
use hayward_testkit::until;

use crate::fixture::{Fixture, job_with_tasks, report};

const MIB: u64 = 1 << 20;

fn report_with_usage(task: u64, attempt: u32, exit_code: i32, mebibytes: u64) -> TaskReport {
    TaskReport {
        usage: Some(RunUsage {
            user_us: 30_000,
            system_us: 5_000,
            max_rss_bytes: mebibytes * MIB / 2,
            peak_memory_bytes: Some(mebibytes * MIB),
            source: UsageSource::Cgroup2,
        }),
        ..report(task, attempt, exit_code)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usage_of_each_run_is_shown_and_summed_across_restarts() {
    let mut fixture = Fixture::with_short_lease().await;
    let job = fixture.submit(job_with_tasks(10)).await;
    let demand = fixture.demand_of(&job.id).await;
    let process = fixture.scheduler.grant(&demand);
    let runner = fixture.runner(&demand);
    runner.lease(&process.id, 10).await;
    let mut reports: Vec<_> = (0..4)
        .map(|task| report_with_usage(task, 1, 0, 10))
        .collect();
    reports.push(report_with_usage(4, 1, 3, 40));
    // A run that was lost has no usage.
    reports.push(report(5, 1, 0));
    runner.report(&process.id, reports).await;

    let tasks = fixture.tasks(&job.id).await.tasks;
    assert_eq!(tasks.len(), 5);
    let usage = tasks[0].usage.unwrap();
    assert_eq!((usage.cpu_us(), usage.memory_bytes()), (35_000, 10 * MIB));
    assert_eq!(usage.source, UsageSource::Cgroup2);
    assert!(tasks[4].usage.is_none(), "{:?}", tasks[4]);
    let path = format!("/v1/jobs/{}/tasks/4", job.id);
    let history: TaskHistory = fixture.user("ann").get(&path).await.unwrap();
    let attempt = &history.attempts[0];
    assert_eq!(attempt.usage.unwrap().memory_bytes(), 40 * MIB);
    assert_eq!(attempt.duration_us, Some(70_000));

    for _ in 0..2 {
        let summary = until("the usage to be published", async || {
            let usage = fixture.view(&job.id).await.usage?;
            (usage.runs == 5).then_some(usage)
        })
        .await;
        assert_eq!((summary.cpu_us, summary.wall_us), (5 * 35_000, 5 * 70_000));
        let memory = summary.memory_bytes;
        assert!((10 * MIB..12 * MIB).contains(&memory.median), "{memory:?}");
        assert_eq!(memory.max, 40 * MIB);
        assert_eq!(summary.run_us.max, 70_000);
        fixture.kill_and_restart().await;
        // A change makes the service publish the job again.
        let runner = fixture.runner(&fixture.demand_of(&job.id).await);
        runner.lease(&process.id, 1).await;
    }
}

/// A runner with a fault, or a forged report, must not make the sums of a restart overflow.
#[tokio::test(flavor = "multi_thread")]
async fn the_service_restarts_after_reports_with_impossible_amounts() {
    let mut fixture = Fixture::with_short_lease().await;
    let job = fixture.submit(job_with_tasks(3)).await;
    let demand = fixture.demand_of(&job.id).await;
    let process = fixture.scheduler.grant(&demand);
    let runner = fixture.runner(&demand);
    runner.lease(&process.id, 2).await;
    let impossible = |task| TaskReport {
        duration_us: u64::MAX,
        usage: Some(RunUsage {
            user_us: u64::MAX,
            system_us: 1,
            max_rss_bytes: u64::MAX,
            peak_memory_bytes: None,
            source: UsageSource::Wait4,
        }),
        ..report(task, 1, 0)
    };
    let reports = vec![impossible(0), impossible(1)];
    runner.report(&process.id, reports).await;
    fixture.kill_and_restart().await;
    let counts = until("the outcomes to be there", async || {
        let tasks = fixture.view(&job.id).await.tasks?;
        (tasks.succeeded == 2).then_some(tasks)
    })
    .await;
    assert_eq!(counts.waiting, 1);
}
