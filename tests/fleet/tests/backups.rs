//! Backups, restores, and a database that went back in time. After such a step back no service
//! writes, no work ends, and all services give the reason until an operator decides (R9).

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use hayward::prepare::SERVICES;
use hayward_container_manager_api::ContainerList;
use hayward_job_converter_api::{Timeline, WorkState, WorkView};
use hayward_service::Code;
use hayward_service::health::Status;
use hayward_testkit::until_within;
use hayward_tests_fleet::{
    Agent, Pace, TestFleet, ends, is_running, job, reaches, service, submit,
};
use http::Method;

const LIMIT: Duration = Duration::from_mins(2);

/// Runs `hayward` as an operator does, with the keys and the administrator of the database.
fn hayward(fleet: &TestFleet, words: &[&str]) -> Output {
    let mut command = fleet.command("operator");
    command
        .args(words)
        .env("HAYWARD_STATE", fleet.dir.path())
        .env("HAYWARD_ADMIN_URL", fleet.admin_url())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.output().expect("the program runs")
}

fn text_of(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}

async fn status(fleet: &TestFleet, service: &str) -> Option<Status> {
    let client = fleet.client(service, "operator");
    client.get("/v1/status").await.ok()
}

fn kill_services(fleet: &mut TestFleet) {
    for (service, _) in SERVICES {
        fleet.kill(service);
    }
}

async fn start_services(fleet: &mut TestFleet) {
    for (service, _) in SERVICES {
        fleet.start_service(service);
    }
    fleet.services_are_ready().await;
}

async fn fleet() -> TestFleet {
    let mut fleet = TestFleet::at(Pace::patient()).await;
    for node in ["node-1", "node-2"] {
        fleet.start_agent(node, &Agent::default());
    }
    fleet.nodes_take_work(2).await;
    fleet
}

async fn keeps_up(fleet: &TestFleet, seconds: &str) -> String {
    let ada = fleet.client("job-converter", "user-ada");
    let work = submit(&ada, "services", &service(&["sleep", seconds], 1)).await;
    let path = format!("/v1/services/{work}");
    reaches(&ada, &path, LIMIT, is_running).await;
    runs(fleet, &format!("sleep {seconds}"), 1).await;
    path
}

/// Waits until `count` processes of this kind run.
async fn runs(fleet: &TestFleet, word: &str, count: usize) {
    let what = format!("{count} of {word}");
    until_within(&what, LIMIT, async || {
        (fleet.alive_anywhere(word) == count).then_some(())
    })
    .await;
}

async fn works_again(fleet: &TestFleet) {
    let ada = fleet.client("job-converter", "user-ada");
    let after = submit(&ada, "jobs", &job(&["true"], 3)).await;
    assert_eq!(ends(&ada, &after, LIMIT).await.state, WorkState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_put_back_and_what_came_after_it_is_gone() {
    let mut fleet = fleet().await;
    let ada = fleet.client("job-converter", "user-ada");
    let service_path = keeps_up(&fleet, "10001").await;
    let before: WorkView = ada.get(&service_path).await.expect("it is there");
    let done = submit(&ada, "jobs", &job(&["true"], 2)).await;
    ends(&ada, &done, LIMIT).await;

    let folder = fleet.dir.path().join("saved");
    let made = hayward(&fleet, &["backup", text(&folder)]);
    assert!(made.status.success(), "{}", text_of(&made));
    assert!(folder.join("keys/issuer.pem").is_file());

    let later = keeps_up(&fleet, "10002").await;
    let lost = submit(&ada, "jobs", &job(&["true"], 2)).await;
    ends(&ada, &lost, LIMIT).await;

    let early = hayward(&fleet, &["restore", text(&folder)]);
    assert!(!early.status.success());
    assert!(
        text_of(&early).contains("stop all services"),
        "{}",
        text_of(&early)
    );

    kill_services(&mut fleet);
    until_within("the leases to have run out", LIMIT, async || {
        let tried = hayward(&fleet, &["restore", text(&folder), "--dry-run"]);
        let text = text_of(&tried);
        (tried.status.success() && text.contains("nothing was changed")).then_some(())
    })
    .await;
    let restored = hayward(&fleet, &["restore", text(&folder)]);
    assert!(restored.status.success(), "{}", text_of(&restored));
    start_services(&mut fleet).await;

    // Work in the backup was not touched. Newer work is unknown and has ended.
    runs(&fleet, "sleep 10002", 0).await;
    assert_eq!(fleet.alive_anywhere("sleep 10001"), 1);
    let after = reaches(&ada, &service_path, LIMIT, is_running).await;
    assert_eq!(
        before.processes[0].allocation,
        after.processes[0].allocation
    );
    let old: WorkView = ada
        .get(&format!("/v1/jobs/{done}"))
        .await
        .expect("it is there");
    assert_eq!(old.state, WorkState::Completed);
    for gone in [later, format!("/v1/jobs/{lost}")] {
        assert!(ada.get::<WorkView>(&gone).await.is_err(), "{gone}");
    }
    works_again(&fleet).await;
    for (service, _) in SERVICES {
        let status = status(&fleet, service).await.expect("it answers");
        assert!(status.ready, "{service}: {:?}", status.not_ready);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_put_into_a_server_that_has_no_database_yet() {
    let mut fleet = TestFleet::at(Pace::patient()).await;
    let folder = fleet.dir.path().join("saved");
    let made = hayward(&fleet, &["backup", text(&folder)]);
    assert!(made.status.success(), "{}", text_of(&made));
    kill_services(&mut fleet);
    let here = fleet.admin_url();
    let (server, parameters) = here.split_once('?').expect("an address with parameters");
    let elsewhere = format!("{server}_elsewhere?{parameters}");
    let keys = fleet.dir.path().join("keys-elsewhere");
    let words = ["restore", text(&folder), "--keys", text(&keys)];
    let words = [&words[..], &["--admin-url", &elsewhere]].concat();
    let dry: Vec<&str> = words.iter().copied().chain(["--dry-run"]).collect();
    let dry_run = hayward(&fleet, &dry);
    assert!(dry_run.status.success(), "{}", text_of(&dry_run));
    let there = hayward_postgres::connect_if_exists(&elsewhere).await;
    assert!(there.expect("the server answers").is_none(), "it was made");

    let restored = hayward(&fleet, &words);
    assert!(restored.status.success(), "{}", text_of(&restored));
    let there = hayward_postgres::connect_if_exists(&elsewhere).await;
    assert!(there.expect("the server answers").is_some());
    assert!(keys.join("issuer.pem").is_file());
    let dropped = hayward_postgres::drop_database(&elsewhere).await;
    dropped.expect("it was ours");
}

/// A dump by the tools of Postgres alone. Its restore creates no new lineage, like a snapshot of a
/// virtual machine or a switch to an asynchronous standby.
struct Older(std::path::PathBuf);

impl Older {
    fn take(fleet: &TestFleet) -> Self {
        let file = fleet.dir.path().join("older.dump");
        let url = fleet.admin_url();
        let dumped = run("pg_dump", &["-Fc", "--file", text(&file), &url]);
        assert!(dumped.status.success(), "{}", text_of(&dumped));
        Self(file)
    }

    /// Restores the dump, and retries while running services block it.
    async fn put(&self, fleet: &TestFleet) {
        let url = fleet.admin_url();
        let words = ["--clean", "--if-exists", "--single-transaction", "--dbname"];
        let words = words.into_iter().chain([url.as_str(), text(&self.0)]);
        let words: Vec<&str> = words.collect();
        until_within("the older rows to be in place", LIMIT, async || {
            let restored = run("pg_restore", &words);
            let done = restored.status.success();
            if !done {
                eprintln!("{}", text_of(&restored));
            }
            done.then_some(())
        })
        .await;
    }
}

fn run(program: &'static str, words: &[&str]) -> Output {
    let program = hayward_postgres::program(program).expect("a client of Postgres");
    let output = Command::new(&program).args(words).output();
    output.expect("it runs")
}

async fn read_only(fleet: &TestFleet, service: &str) {
    until_within(&format!("{service} to be read-only"), LIMIT, async || {
        let status = status(fleet, service).await?;
        let reasons = status.not_ready.iter();
        let mut reasons = reasons.filter(|why| why.contains("went back in time"));
        (!status.ready && reasons.next().is_some()).then_some(())
    })
    .await;
}

/// Asserts that rows can be read: containers, their output, and their outcomes.
async fn is_read(fleet: &TestFleet, work: &str) {
    let containers = format!("/v1/containers?work={work}.0");
    let found: ContainerList = stale(fleet, "container-manager", &containers).await;
    let container = &found.containers.first().expect("one that ended").entry.id;
    for (service, path) in [
        ("container-manager", format!("/v1/containers/{container}")),
        (
            "container-manager",
            format!("/v1/containers/{container}/logs"),
        ),
        ("container-manager", format!("/v1/logs/{work}")),
        ("node-status", "/v1/nodes/node-1/history".to_owned()),
        ("blocklist", "/v1/blocklist/history".to_owned()),
        ("rm-scheduler", "/v1/policy/history".to_owned()),
        ("job-converter", "/v1/audit?limit=1".to_owned()),
    ] {
        stale::<serde_json::Value>(fleet, service, &path).await;
    }
}

/// Reads an answer and asserts that it is marked as stale (A11).
async fn stale<T: serde::de::DeserializeOwned>(fleet: &TestFleet, service: &str, path: &str) -> T {
    let client = fleet.client(service, "operator");
    let answer = client.call(Method::GET, path).answer::<T>().await;
    let answer = answer.unwrap_or_else(|error| panic!("{service}{path}: {error}"));
    assert_eq!(
        answer.headers["hayward-stale"], "went_back",
        "{service}{path}"
    );
    answer.body
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_database_makes_the_fleet_read_only_until_an_operator_decides() {
    let mut fleet = fleet().await;
    let ada = fleet.client("job-converter", "user-ada");
    let service_path = keeps_up(&fleet, "10003").await;
    let older = Older::take(&fleet);
    let later = keeps_up(&fleet, "10004").await;
    let written = hayward(&fleet, &["restore", "--accept-loss"]);
    assert!(!written.status.success(), "there is nothing to accept yet");

    older.put(&fleet).await;
    for (service, _) in SERVICES {
        read_only(&fleet, service).await;
    }
    let key = hayward_service::runtime::clock::fresh_uuid().to_string();
    let refused = ada
        .post::<_, serde_json::Value>("/v1/jobs", &job(&["true"], 1), Some(&key))
        .await
        .expect_err("nothing is written");
    let problem = refused.problem().expect("a document").clone();
    assert_eq!(problem.code, Code::WentBack, "{problem}");
    assert!(problem.detail.contains("went back in time"), "{problem}");
    stale::<WorkView>(&fleet, "job-converter", &service_path).await;
    stale::<Timeline>(&fleet, "job-converter", &format!("{service_path}/timeline")).await;
    let work = service_path.trim_start_matches("/v1/services/");
    is_read(&fleet, work).await;

    // A restart is not a decision of the operator. Rows can still be read.
    for (service, _) in SERVICES {
        fleet.kill(service);
        fleet.start_service(service);
    }
    for (service, _) in SERVICES {
        read_only(&fleet, service).await;
    }
    is_read(&fleet, work).await;
    let page = hayward(&fleet, &["doctor"]);
    assert_eq!(page.status.code(), Some(1));
    let page = text_of(&page);
    assert!(page.contains("hayward restore --accept-loss"), "{page}");
    let no = hayward(&fleet, &["preflight"]);
    assert_eq!(no.status.code(), Some(1), "{}", text_of(&no));
    assert!(
        text_of(&no).contains("went back in time"),
        "{}",
        text_of(&no)
    );
    // No service ended work because of the older rows.
    assert_eq!(fleet.alive_anywhere("sleep 10003"), 1);
    assert_eq!(fleet.alive_anywhere("sleep 10004"), 1);

    let decided = hayward(&fleet, &["restore", "--accept-loss"]);
    assert!(decided.status.success(), "{}", text_of(&decided));
    fleet.services_are_ready().await;
    runs(&fleet, "sleep 10004", 0).await;
    assert_eq!(fleet.alive_anywhere("sleep 10003"), 1);
    reaches(&ada, &service_path, LIMIT, is_running).await;
    assert!(ada.get::<WorkView>(&later).await.is_err());
    works_again(&fleet).await;
}

/// All services were down too, so only the agents know the newer revision.
#[tokio::test(flavor = "multi_thread")]
async fn one_agent_with_a_newer_revision_makes_the_fleet_read_only() {
    let mut fleet = fleet().await;
    keeps_up(&fleet, "10005").await;
    let older = Older::take(&fleet);
    keeps_up(&fleet, "10006").await;
    kill_services(&mut fleet);
    for node in ["node-1", "node-2"] {
        fleet.kill(node);
    }
    older.put(&fleet).await;
    for (service, _) in SERVICES {
        fleet.start_service(service);
    }
    for node in ["node-1", "node-2"] {
        fleet.start_agent(node, &Agent::default());
    }
    for (service, _) in SERVICES {
        read_only(&fleet, service).await;
    }
    assert_eq!(fleet.alive_anywhere("sleep 10006"), 1);
    let decided = hayward(&fleet, &["restore", "--accept-loss"]);
    assert!(decided.status.success(), "{}", text_of(&decided));
    fleet.services_are_ready().await;
    runs(&fleet, "sleep 10006", 0).await;
    assert_eq!(fleet.alive_anywhere("sleep 10005"), 1);
    works_again(&fleet).await;
}
