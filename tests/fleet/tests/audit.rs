//! Audit records of a real fleet: services are killed while users submit. Each submission has
//! exactly one record in a chain that verifies, and an altered record is named (I19).

use std::process::{Output, Stdio};
use std::time::Duration;

use hayward_job_converter_api::WorkList;
use hayward_publication::audit::{AuditOutcome, AuditPage, AuditRecord};
use hayward_service::Client;
use hayward_service::invariants::{Invariants, RuleResult};
use hayward_testkit::until_within;
use hayward_tests_fleet::{TestFleet, job, submit};
use sqlx::Connection as _;
use tokio::task::LocalSet;

const LIMIT: Duration = Duration::from_mins(1);

/// Runs `hayward audit` as an operator does.
fn run_audit(fleet: &TestFleet, arguments: &[&str]) -> Output {
    let mut command = fleet.command("audit");
    command
        .arg("audit")
        .args(arguments)
        .env("HAYWARD_STATE", fleet.dir.path())
        .stdout(Stdio::piped());
    command.output().expect("the program runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

async fn all_records(client: &Client) -> Vec<AuditRecord> {
    let (mut records, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let call = client.call(http::Method::GET, "/v1/audit?limit=7");
        let call = match &cursor {
            Some(cursor) => call.query("cursor", cursor),
            None => call,
        };
        let page: AuditPage = call.send().await.expect("a page");
        records.extend(page.records);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return records;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_submission_has_exactly_one_record_when_the_service_is_killed() {
    let mut fleet = TestFleet::start().await;
    let operator = fleet.client("job-converter", "operator");
    let ada = fleet.client("job-converter", "user-ada");
    for round in 0..3 {
        // The client retries with its key, so that each submission exists once in the end.
        let submitters = LocalSet::new();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let ada = ada.clone();
                submitters.spawn_local(async move {
                    for _ in 0..10 {
                        submit(&ada, "jobs", &job(&["/bin/true"], 1)).await;
                    }
                })
            })
            .collect();
        let kill_and_wait = async {
            until_within("more jobs to be submitted", LIMIT, async || {
                let list = ada.get::<WorkList>("/v1/jobs?limit=1000").await.ok()?;
                (list.items.len() > 80 * round + 5).then_some(())
            })
            .await;
            fleet.kill("job-converter");
            fleet.start_service("job-converter");
            for task in tasks {
                task.await.expect("submitted");
            }
        };
        submitters.run_until(kill_and_wait).await;
    }
    fleet.wait_until_services_are_ready().await;
    let list: WorkList = ada.get("/v1/jobs?limit=1000").await.expect("jobs");
    let records = all_records(&operator).await;
    let submitted: Vec<_> = records
        .iter()
        .filter(|it| it.actor == "ada" && it.route == "/v1/jobs" && it.method == "POST")
        .collect();
    assert_eq!(list.items.len(), 240);
    assert_eq!(submitted.len(), list.items.len(), "one record for each job");
    for record in submitted {
        check_fields(record, &list);
    }
    let verified = run_audit(&fleet, &["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", stdout(&verified));
    for (service, _) in hayward::prepare::SERVICES {
        assert!(stdout(&verified).contains(service), "{}", stdout(&verified));
        let client = fleet.client(service, "operator");
        let report: Invariants = client.get("/v1/invariants").await.expect("an answer");
        let rule = report.rules.iter().find(|it| it.id == "I19").expect("I19");
        assert_eq!(rule.result, RuleResult::Holds, "{rule:?}");
    }
}

/// Asserts that the record has the caller, the address, the action and the request (S24).
fn check_fields(record: &AuditRecord, list: &WorkList) {
    assert_eq!(record.outcome, AuditOutcome::Committed);
    assert_eq!(
        (record.kind.as_str(), record.subject.as_str()),
        ("submitter", "ada")
    );
    assert_eq!(record.address.as_deref(), Some("127.0.0.1"));
    assert!(record.digest_before.is_none() && record.digest_after.is_some());
    let entry = record.entry.as_deref().expect("an entry");
    let mut jobs = list.items.iter();
    assert!(jobs.any(|it| entry.contains(it.id.as_str())), "{entry}");
    assert!(record.request_id.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_recorded_and_an_altered_record_is_named() {
    let fleet = TestFleet::start().await;
    let operator = fleet.client("job-converter", "operator");
    let ada = fleet.client("job-converter", "user-ada");
    for _ in 0..3 {
        submit(&ada, "jobs", &job(&["/bin/true"], 1)).await;
    }
    for _ in 0..5 {
        let refused = ada.get::<serde_json::Value>("/v1/audit").await;
        assert!(refused.is_err(), "a user may not read the audit (S12)");
    }
    let refusal = until_within("the refusals", LIMIT, async || {
        let records = all_records(&operator).await.into_iter();
        let mut refused = records.filter(|it| it.outcome == AuditOutcome::Refused);
        refused.find(|it| it.actor == "ada" && it.route == "/v1/audit")
    })
    .await;
    assert_eq!(
        (refusal.status, refusal.method.as_str()),
        (Some(403), "GET")
    );

    let before = stdout(&run_audit(&fleet, &["export"]));
    let file = fleet.dir.path().join("export.jsonl");
    std::fs::write(&file, &before).expect("written");
    let name = file.to_str().expect("a name");
    let verify = ["verify", "--file", name];
    assert_eq!(run_audit(&fleet, &verify).status.code(), Some(0));
    std::fs::write(&file, before.replacen("\"ada\"", "\"eve\"", 1)).expect("written");
    assert_eq!(run_audit(&fleet, &verify).status.code(), Some(1));

    // Only an administrator of the database can do this.
    let records = all_records(&operator).await;
    let altered_number = records
        .iter()
        .find(|it| it.actor == "ada")
        .expect("a record of ada")
        .number;
    let url = hayward_postgres::role_url(fleet.database("job_converter"), "postgres", None);
    let mut connection = sqlx::PgConnection::connect(&url.expect("an address"))
        .await
        .expect("a connection");
    sqlx::query("update job_converter.audit set actor = 'eve' where number = $1")
        .bind(i64::try_from(altered_number).expect("small"))
        .execute(&mut connection)
        .await
        .expect("altered");
    let output = run_audit(&fleet, &["verify"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let expected_line = format!("job-converter: record {altered_number} is not what was written");
    assert!(
        stdout(&output).contains(&expected_line),
        "{}",
        stdout(&output)
    );
}
