//! Tests of `docs/examples/planner.py`, the example of an external planner. Its option `--bad`
//! makes one mistake.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hayward_rm_scheduler_api::VerdictEntry;
use hayward_rm_scheduler_api::planners::StepRefusal;
use serde_json::json;

use super::super::fixture::{Allocations, Fixture};
use super::{
    count_held, external_job, policy_with_planner, replay_all_rounds, set_policy, until_refused,
};

/// The running program. It is killed at the end of the test.
struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Example {
    /// Starts the program and returns its address. Returns `None` if there is no `python3`.
    fn start(options: &[&str]) -> Option<(Self, String)> {
        const PATH: &str = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/examples/planner.py"
        );
        let spawned = Command::new("python3")
            .args([PATH, "--port", "0", "--quiet"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else {
            println!("skipped: there is no python3 to run {PATH}");
            return None;
        };
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("plans at ").unwrap().to_owned();
        Some((Self(child), url))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_serves_users_in_turn() {
    let Some((_example, url)) = Example::start(&[]) else {
        return;
    };
    let fixture = Fixture::new(&[1, 3, 3]).await;
    fixture
        .neighbours
        .submit(&external_job("job_ann", "ann", 9));
    fixture
        .neighbours
        .submit(&external_job("job_ben", "ben", 9));
    // The planner must see both jobs in its first round.
    for job in ["job_ann", "job_ben"] {
        fixture
            .until_verdict_matches(job, "is known", |_| true)
            .await;
    }
    set_policy(&fixture, &policy_with_planner(&json!({ "url": url })))
        .await
        .unwrap();
    let full = |all: &Allocations| count_held(all, "job_ann") + count_held(all, "job_ben") == 6;
    let all = fixture
        .until("all six quanta of the pool to be granted", full)
        .await;
    assert_eq!(
        (count_held(&all, "job_ann"), count_held(&all, "job_ben")),
        (3, 3)
    );
    let has_detail = |it: &VerdictEntry| it.detail.ends_with("no node has room for 1 quanta");
    fixture
        .until_verdict_matches("job_ben", "has the note of the planner", has_detail)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_of_the_example_planner_is_refused() {
    let fixture = Fixture::new(&[1, 2]).await;
    fixture.neighbours.submit(&external_job("job_a", "ann", 3));
    for (mistake, expected) in [
        ("unknown", "is refused: there is no node atlantis"),
        ("garbage", "cannot be parsed"),
        ("huge", "more than 4194304 bytes"),
        ("slow", "no answer within 200 ms"),
        ("error", "it answers 500"),
        ("redirect", "redirects are not followed"),
        ("stale", "for another revision"),
        ("overcommit", "is refused: node n2 has room for 2 of 1003"),
        ("foreign", "and gave no reason"),
    ] {
        let Some((_example, url)) = Example::start(&["--bad", mistake]) else {
            return;
        };
        let planner_settings =
            json!({ "url": url, "timeout_ms": if mistake == "slow" { 200 } else { 10_000 } });
        set_policy(&fixture, &policy_with_planner(&planner_settings))
            .await
            .unwrap();
        let has_detail = |it: &VerdictEntry| it.detail.contains(expected);
        fixture
            .until_verdict_matches("job_a", mistake, has_detail)
            .await;
    }
    let steps = until_refused(&fixture).await;
    assert!(
        steps
            .iter()
            .any(|it| it.reason == StepRefusal::ServesNobody),
        "{steps:?}"
    );
    let all = fixture.allocations().await;
    assert_eq!(
        count_held(&all, "job_a"),
        2,
        "the grants of `overcommit` that fitted stay"
    );
    replay_all_rounds(&fixture).await;
    tokio::time::timeout(Duration::from_secs(30), fixture.settle())
        .await
        .expect("rounds without further changes");
}
