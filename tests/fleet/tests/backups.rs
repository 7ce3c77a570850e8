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
    Agent, TestFleet, Timing, is_running, job, service, submit, wait_for_end, wait_for_view,
};
use http::Method;

const LIMIT: Duration = Duration::from_mins(2);

/// Runs `hayward` as an operator does, with the keys and the administrator of the database.
fn run_hayward(fleet: &TestFleet, arguments: &[&str]) -> Output {
    let mut command = fleet.command("operator");
    command
        .args(arguments)
        .env("HAYWARD_STATE", fleet.dir.path())
        .env("HAYWARD_ADMIN_URL", fleet.admin_url())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.output().expect("the program runs")
}

fn output_text(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

async fn read_status(fleet: &TestFleet, service: &str) -> Option<Status> {
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
    fleet.wait_until_services_are_ready().await;
}

/// Starts a fleet with two agents.
async fn start_fleet() -> TestFleet {
    let mut fleet = TestFleet::start_with_timing(Timing::without_node_loss()).await;
    for node in ["node-1", "node-2"] {
        fleet.start_agent(node, &Agent::default());
    }
    fleet.wait_until_nodes_take_work(2).await;
    fleet
}

/// Submits a service that sleeps for this time, and waits until it runs. Returns its path. Each
/// service of a test has another time, by which its processes are found.
async fn submit_running_service(fleet: &TestFleet, seconds: &str) -> String {
    let ada = fleet.client("job-converter", "user-ada");
    let work = submit(&ada, "services", &service(&["sleep", seconds], 1)).await;
    let path = format!("/v1/services/{work}");
    wait_for_view(&ada, &path, LIMIT, is_running).await;
    wait_for_process_count(fleet, &format!("sleep {seconds}"), 1).await;
    path
}

/// Waits until `count` processes have this text in their arguments.
async fn wait_for_process_count(fleet: &TestFleet, text: &str, count: usize) {
    let description = format!("{count} processes of {text}");
    until_within(&description, LIMIT, async || {
        (fleet.count_processes(text) == count).then_some(())
    })
    .await;
}

async fn assert_jobs_complete(fleet: &TestFleet) {
    let ada = fleet.client("job-converter", "user-ada");
    let after = submit(&ada, "jobs", &job(&["true"], 3)).await;
    assert_eq!(
        wait_for_end(&ada, &after, LIMIT).await.state,
        WorkState::Completed
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_brings_back_the_backup_and_drops_newer_work() {
    let mut fleet = start_fleet().await;
    let ada = fleet.client("job-converter", "user-ada");
    let service_path = submit_running_service(&fleet, "10001").await;
    let before: WorkView = ada.get(&service_path).await.expect("it is there");
    let completed = submit(&ada, "jobs", &job(&["true"], 2)).await;
    wait_for_end(&ada, &completed, LIMIT).await;

    let folder = fleet.dir.path().join("saved");
    let backup = run_hayward(&fleet, &["backup", path_text(&folder)]);
    assert!(backup.status.success(), "{}", output_text(&backup));
    assert!(folder.join("keys/issuer.pem").is_file());

    let later = submit_running_service(&fleet, "10002").await;
    let newer_job = submit(&ada, "jobs", &job(&["true"], 2)).await;
    wait_for_end(&ada, &newer_job, LIMIT).await;

    let refused = run_hayward(&fleet, &["restore", path_text(&folder)]);
    assert!(!refused.status.success());
    assert!(
        output_text(&refused).contains("stop all services"),
        "{}",
        output_text(&refused)
    );

    kill_services(&mut fleet);
    until_within("the leases to have run out", LIMIT, async || {
        let dry_run = run_hayward(&fleet, &["restore", path_text(&folder), "--dry-run"]);
        let text = output_text(&dry_run);
        (dry_run.status.success() && text.contains("nothing was changed")).then_some(())
    })
    .await;
    let restored = run_hayward(&fleet, &["restore", path_text(&folder)]);
    assert!(restored.status.success(), "{}", output_text(&restored));
    start_services(&mut fleet).await;

    // Work in the backup was not touched. Newer work is unknown and has ended.
    wait_for_process_count(&fleet, "sleep 10002", 0).await;
    assert_eq!(fleet.count_processes("sleep 10001"), 1);
    let after = wait_for_view(&ada, &service_path, LIMIT, is_running).await;
    assert_eq!(
        before.processes[0].allocation,
        after.processes[0].allocation
    );
    let restored_job: WorkView = ada
        .get(&format!("/v1/jobs/{completed}"))
        .await
        .expect("it is there");
    assert_eq!(restored_job.state, WorkState::Completed);
    for missing in [later, format!("/v1/jobs/{newer_job}")] {
        assert!(ada.get::<WorkView>(&missing).await.is_err(), "{missing}");
    }
    assert_jobs_complete(&fleet).await;
    for (service, _) in SERVICES {
        let status = read_status(&fleet, service).await.expect("it answers");
        assert!(status.ready, "{service}: {:?}", status.not_ready);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_restored_to_a_server_without_a_database() {
    let mut fleet = TestFleet::start_with_timing(Timing::without_node_loss()).await;
    let folder = fleet.dir.path().join("saved");
    let backup = run_hayward(&fleet, &["backup", path_text(&folder)]);
    assert!(backup.status.success(), "{}", output_text(&backup));
    kill_services(&mut fleet);
    let own_url = fleet.admin_url();
    let (server, parameters) = own_url.split_once('?').expect("an address with parameters");
    let other_url = format!("{server}_elsewhere?{parameters}");
    let keys = fleet.dir.path().join("keys-elsewhere");
    let arguments = ["restore", path_text(&folder), "--keys", path_text(&keys)];
    let arguments = [&arguments[..], &["--admin-url", &other_url]].concat();
    let dry_run_arguments: Vec<&str> = arguments.iter().copied().chain(["--dry-run"]).collect();
    let dry_run = run_hayward(&fleet, &dry_run_arguments);
    assert!(dry_run.status.success(), "{}", output_text(&dry_run));
    let connection = hayward_postgres::connect_if_exists(&other_url).await;
    assert!(
        connection.expect("the server answers").is_none(),
        "a dry run creates no database"
    );

    let restored = run_hayward(&fleet, &arguments);
    assert!(restored.status.success(), "{}", output_text(&restored));
    let connection = hayward_postgres::connect_if_exists(&other_url).await;
    assert!(connection.expect("the server answers").is_some());
    assert!(keys.join("issuer.pem").is_file());
    let dropped = hayward_postgres::drop_database(&other_url).await;
    dropped.expect("the database is dropped");
}

/// A dump by the tools of Postgres alone. Its restore creates no new lineage, like a snapshot of a
/// virtual machine or a switch to an asynchronous standby.
struct OldDump(std::path::PathBuf);

impl OldDump {
    fn create(fleet: &TestFleet) -> Self {
        let file = fleet.dir.path().join("older.dump");
        let url = fleet.admin_url();
        let dump_output = run("pg_dump", &["-Fc", "--file", path_text(&file), &url]);
        assert!(
            dump_output.status.success(),
            "{}",
            output_text(&dump_output)
        );
        Self(file)
    }

    /// Restores the dump, and retries while running services block it.
    async fn restore(&self, fleet: &TestFleet) {
        let url = fleet.admin_url();
        let options = ["--clean", "--if-exists", "--single-transaction", "--dbname"];
        let arguments = options
            .into_iter()
            .chain([url.as_str(), path_text(&self.0)]);
        let arguments: Vec<&str> = arguments.collect();
        until_within("the older rows to be in place", LIMIT, async || {
            let restored = run("pg_restore", &arguments);
            let succeeded = restored.status.success();
            if !succeeded {
                eprintln!("{}", output_text(&restored));
            }
            succeeded.then_some(())
        })
        .await;
    }
}

fn run(program: &'static str, arguments: &[&str]) -> Output {
    let program = hayward_postgres::program(program).expect("a client of Postgres");
    let output = Command::new(&program).args(arguments).output();
    output.expect("it runs")
}

async fn wait_until_read_only(fleet: &TestFleet, service: &str) {
    until_within(&format!("{service} to be read-only"), LIMIT, async || {
        let status = read_status(fleet, service).await?;
        let reasons = status.not_ready.iter();
        let mut reasons = reasons.filter(|reason| reason.contains("went back in time"));
        (!status.ready && reasons.next().is_some()).then_some(())
    })
    .await;
}

/// Asserts that rows can be read: containers, their output, and their outcomes.
async fn assert_rows_are_readable(fleet: &TestFleet, work: &str) {
    let containers = format!("/v1/containers?work={work}.0");
    let list: ContainerList = read_stale(fleet, "container-manager", &containers).await;
    let container = &list.containers.first().expect("one that ended").entry.id;
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
        read_stale::<serde_json::Value>(fleet, service, &path).await;
    }
}

/// Reads an answer and asserts that it is marked as stale (A11).
async fn read_stale<T: serde::de::DeserializeOwned>(
    fleet: &TestFleet,
    service: &str,
    path: &str,
) -> T {
    let client = fleet.client(service, "operator");
    let response = client
        .call(Method::GET, path)
        .send_for_response::<T>()
        .await;
    let response = response.unwrap_or_else(|error| panic!("{service}{path}: {error}"));
    assert_eq!(
        response.headers["hayward-stale"], "went_back",
        "{service}{path}"
    );
    response.body
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_database_makes_the_fleet_read_only_until_an_operator_decides() {
    let mut fleet = start_fleet().await;
    let ada = fleet.client("job-converter", "user-ada");
    let service_path = submit_running_service(&fleet, "10003").await;
    let old_dump = OldDump::create(&fleet);
    let later = submit_running_service(&fleet, "10004").await;
    let refused = run_hayward(&fleet, &["restore", "--accept-loss"]);
    assert!(!refused.status.success(), "there is nothing to accept yet");

    old_dump.restore(&fleet).await;
    for (service, _) in SERVICES {
        wait_until_read_only(&fleet, service).await;
    }
    let key = hayward_service::runtime::clock::fresh_uuid().to_string();
    let error = ada
        .post::<_, serde_json::Value>("/v1/jobs", &job(&["true"], 1), Some(&key))
        .await
        .expect_err("nothing is written");
    let problem = error.problem().expect("a document").clone();
    assert_eq!(problem.code, Code::WentBack, "{problem}");
    assert!(problem.detail.contains("went back in time"), "{problem}");
    read_stale::<WorkView>(&fleet, "job-converter", &service_path).await;
    read_stale::<Timeline>(&fleet, "job-converter", &format!("{service_path}/timeline")).await;
    let work = service_path.trim_start_matches("/v1/services/");
    assert_rows_are_readable(&fleet, work).await;

    // A restart is not a decision of the operator. Rows can still be read.
    for (service, _) in SERVICES {
        fleet.kill(service);
        fleet.start_service(service);
    }
    for (service, _) in SERVICES {
        wait_until_read_only(&fleet, service).await;
    }
    assert_rows_are_readable(&fleet, work).await;
    let doctor = run_hayward(&fleet, &["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    let page = output_text(&doctor);
    assert!(page.contains("hayward restore --accept-loss"), "{page}");
    let check = run_hayward(&fleet, &["preflight"]);
    assert_eq!(check.status.code(), Some(1), "{}", output_text(&check));
    assert!(
        output_text(&check).contains("went back in time"),
        "{}",
        output_text(&check)
    );
    // No service ended work because of the older rows.
    assert_eq!(fleet.count_processes("sleep 10003"), 1);
    assert_eq!(fleet.count_processes("sleep 10004"), 1);

    let accepted = run_hayward(&fleet, &["restore", "--accept-loss"]);
    assert!(accepted.status.success(), "{}", output_text(&accepted));
    fleet.wait_until_services_are_ready().await;
    wait_for_process_count(&fleet, "sleep 10004", 0).await;
    assert_eq!(fleet.count_processes("sleep 10003"), 1);
    wait_for_view(&ada, &service_path, LIMIT, is_running).await;
    assert!(ada.get::<WorkView>(&later).await.is_err());
    assert_jobs_complete(&fleet).await;
}

/// All services are stopped during the restore, so only the agents know the newer revision.
#[tokio::test(flavor = "multi_thread")]
async fn one_agent_with_a_newer_revision_makes_the_fleet_read_only() {
    let mut fleet = start_fleet().await;
    submit_running_service(&fleet, "10005").await;
    let old_dump = OldDump::create(&fleet);
    submit_running_service(&fleet, "10006").await;
    kill_services(&mut fleet);
    for node in ["node-1", "node-2"] {
        fleet.kill(node);
    }
    old_dump.restore(&fleet).await;
    for (service, _) in SERVICES {
        fleet.start_service(service);
    }
    for node in ["node-1", "node-2"] {
        fleet.start_agent(node, &Agent::default());
    }
    for (service, _) in SERVICES {
        wait_until_read_only(&fleet, service).await;
    }
    assert_eq!(fleet.count_processes("sleep 10006"), 1);
    let accepted = run_hayward(&fleet, &["restore", "--accept-loss"]);
    assert!(accepted.status.success(), "{}", output_text(&accepted));
    fleet.wait_until_services_are_ready().await;
    wait_for_process_count(&fleet, "sleep 10006", 0).await;
    assert_eq!(fleet.count_processes("sleep 10005"), 1);
    assert_jobs_complete(&fleet).await;
}
