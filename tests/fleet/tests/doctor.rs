//! `hayward doctor` on a real fleet reports that a healthy fleet is well. When a service is killed,
//! the doctor names the service and the remedy, and still checks the other services.

use std::process::{Output, Stdio};
use std::time::Duration;

use hayward_job_converter_api::WorkState;
use hayward_service::invariants::{Invariants, RuleResult};
use hayward_testkit::until_within;
use hayward_tests_fleet::{TestFleet, job, submit, wait_for_end};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(1);

/// Runs the doctor as a person would, with the operator's token.
fn run_doctor(fleet: &TestFleet, arguments: &[&str]) -> Output {
    let mut command = fleet.command("doctor");
    command
        .arg("doctor")
        .args(arguments)
        .env("HAYWARD_STATE", fleet.dir.path())
        .stdout(Stdio::piped());
    command.output().expect("the program runs")
}

fn stdout_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

async fn wait_until_healthy(fleet: &TestFleet) {
    until_within("a fleet that is well", LIMIT, async || {
        let output = run_doctor(fleet, &[]);
        (output.status.code() == Some(0)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_problems_and_remedies() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: the doctor always warns of agents that are not root");
        return;
    }
    let mut fleet = TestFleet::start_with_agents(2).await;
    let ada = fleet.client("job-converter", "user-ada");
    let id = submit(&ada, "jobs", &job(&["/bin/true"], 4)).await;
    assert_eq!(
        wait_for_end(&ada, &id, LIMIT).await.state,
        WorkState::Completed
    );

    wait_until_healthy(&fleet).await;
    let page = stdout_text(&run_doctor(&fleet, &[]));
    assert!(page.starts_with("the fleet is well"), "{page}");
    assert!(page.contains("2 healthy"), "{page}");
    for (service, _) in hayward::prepare::SERVICES {
        assert!(page.contains(service), "{page}");
        let client = fleet.client(service, "operator");
        let invariants: Invariants = client.get("/v1/invariants").await.expect("an answer");
        let rules = invariants.rules.iter();
        let mut violated = rules.filter(|rule| rule.result == RuleResult::Violated);
        assert_eq!(violated.next(), None);
    }

    fleet.kill("blocklist");
    let output = run_doctor(&fleet, &[]);
    let page = stdout_text(&output);
    assert_eq!(output.status.code(), Some(1), "{page}");
    assert!(page.starts_with("1 thing needs you"), "{page}");
    assert!(page.contains("blocklist does not answer"), "{page}");
    assert!(
        page.contains("do: start it again (`hayward run blocklist`"),
        "{page}"
    );
    assert!(page.contains("2 healthy"), "the others are checked: {page}");

    let output = run_doctor(&fleet, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_str(&stdout_text(&output)).expect("json");
    assert_eq!(report["well"], false);
    assert_eq!(report["needs"][0]["kind"], "away");
    assert_eq!(report["needs"][0]["subject"], "blocklist");
    assert_eq!(report["facts"]["nodes"]["healthy"], 2);

    fleet.start_service("blocklist");
    wait_until_healthy(&fleet).await;

    let empty_state = tempfile::tempdir().expect("a folder");
    let mut command = fleet.command("doctor");
    command
        .arg("doctor")
        .env_clear()
        .env("HAYWARD_STATE", empty_state.path());
    let output = command.output().expect("the program runs");
    assert_eq!(output.status.code(), Some(2), "no fleet can be read");
}
