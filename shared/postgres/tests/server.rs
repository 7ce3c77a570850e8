//! A private server lives as long as its owner and loses no committed data.
#![expect(
    clippy::unwrap_used,
    reason = "a test that fails here has found something"
)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hayward_postgres::{Embedded, Settings};
use sqlx::{Connection, PgConnection};

/// Creates a folder in the temporary directory of the system, which the account of the server can
/// reach.
fn create_home() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new()
        .prefix("hayward-pg-")
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir()
        .unwrap()
}

fn settings(home: &Path) -> Settings {
    Settings {
        durable: false,
        ..Settings::new(home.join("pg"))
    }
}

async fn execute(server: &Embedded, sql: &'static str) {
    let mut connection = PgConnection::connect(&server.url("postgres"))
        .await
        .unwrap();
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
}

async fn count_rows(server: &Embedded) -> i64 {
    let mut connection = PgConnection::connect(&server.url("postgres"))
        .await
        .unwrap();
    sqlx::query_scalar("select count(*) from items")
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

fn is_running(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // A zombie process has ended and only waits for its parent.
    status.is_ok_and(|text| !text.contains(") Z "))
}

async fn wait_until_ended(pid: i32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while is_running(pid) {
        assert!(Instant::now() < deadline, "process {pid} is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts an owner in its own process: this test binary with the test `owner_process` only.
fn spawn_owner_process(home: &Path) -> (Child, i32) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["owner_process", "--exact", "--nocapture"])
        .env("HAYWARD_TEST_PG_HOME", home)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    let pid = lines
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.split_once("server ")?.1.trim().parse().ok())
        .expect("the owner did not print its server");
    (child, pid)
}

#[tokio::test]
async fn owner_process() {
    // This is the body of a child process of other tests. It does nothing in a normal run.
    let Some(home) = std::env::var_os("HAYWARD_TEST_PG_HOME") else {
        return;
    };
    let server = Embedded::start(settings(Path::new(&home))).await.unwrap();
    assert!(server.is_owner());
    execute(
        &server,
        "create table if not exists items (n int); insert into items values (1)",
    )
    .await;
    println!("server {}", server.pid());
    server.wait_until_ended().await;
}

#[tokio::test]
async fn rows_survive_a_stop() {
    let home = create_home();
    let server = Embedded::start(settings(home.path())).await.unwrap();
    execute(
        &server,
        "create table items (n int); insert into items values (1), (2)",
    )
    .await;
    let pid = server.pid();
    server.stop().await;
    assert!(!is_running(pid));
    let server = Embedded::start(settings(home.path())).await.unwrap();
    assert_ne!(server.pid(), pid);
    assert_eq!(count_rows(&server).await, 2);
    server.stop().await;
}

#[tokio::test]
async fn a_second_start_attaches_and_stops_nothing() {
    let home = create_home();
    let first = Embedded::start(settings(home.path())).await.unwrap();
    let second = Embedded::start(settings(home.path())).await.unwrap();
    assert!(first.is_owner() && !second.is_owner());
    assert_eq!(first.pid(), second.pid());
    second.stop().await;
    execute(&first, "select 1").await;
    first.stop().await;
}

#[tokio::test]
async fn starts_at_the_same_moment_share_one_server() {
    let home = create_home();
    let (one, two, three) = tokio::join!(
        Embedded::start(settings(home.path())),
        Embedded::start(settings(home.path())),
        Embedded::start(settings(home.path())),
    );
    let servers = [one.unwrap(), two.unwrap(), three.unwrap()];
    assert_eq!(servers.iter().filter(|server| server.is_owner()).count(), 1);
    assert!(
        servers
            .iter()
            .all(|server| server.pid() == servers[0].pid())
    );
    for server in servers {
        server.stop().await;
    }
}

#[tokio::test]
async fn a_killed_owner_leaves_no_server_and_loses_no_row() {
    let home = create_home();
    let mut owners = 0;
    for _ in 0..2 {
        let (mut owner, pid) = spawn_owner_process(home.path());
        owners += 1;
        assert!(is_running(pid));
        // With SIGKILL the owner cannot clean up.
        owner.kill().unwrap();
        owner.wait().unwrap();
        wait_until_ended(pid).await;
    }
    let server = Embedded::start(settings(home.path())).await.unwrap();
    assert!(server.is_owner());
    assert_eq!(count_rows(&server).await, owners);
    server.stop().await;
}

#[tokio::test]
async fn a_start_right_after_the_kill_does_not_attach_to_the_dying_server() {
    let home = create_home();
    let (mut owner, pid) = spawn_owner_process(home.path());
    owner.kill().unwrap();
    owner.wait().unwrap();
    let server = Embedded::start(settings(home.path())).await.unwrap();
    assert!(server.is_owner());
    assert_ne!(server.pid(), pid);
    assert_eq!(count_rows(&server).await, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_killed_server_is_detected_and_recovers() {
    let home = create_home();
    let server = Embedded::start(settings(home.path())).await.unwrap();
    execute(
        &server,
        "create table items (n int); insert into items values (1)",
    )
    .await;
    let pid = nix::unistd::Pid::from_raw(server.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    tokio::time::timeout(Duration::from_secs(20), server.wait_until_ended())
        .await
        .expect("the end of the server was not noticed");
    let server = Embedded::start(settings(home.path())).await.unwrap();
    assert_eq!(count_rows(&server).await, 1);
    server.stop().await;
}

#[tokio::test]
async fn root_hands_the_server_to_an_unprivileged_account() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let home = create_home();
    let server = Embedded::start(settings(home.path())).await.unwrap();
    let owner = std::fs::metadata(format!("/proc/{}", server.pid()))
        .unwrap()
        .uid();
    let current_user = nix::unistd::Uid::effective();
    if current_user.is_root() {
        assert_ne!(owner, 0);
    } else {
        assert_eq!(owner, current_user.as_raw());
    }
    for folder in ["pg", "pg/run", "pg/data"] {
        let mode = std::fs::metadata(home.path().join(folder))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700, "{folder} is open to others");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_error_names_a_folder_that_the_server_cannot_reach() {
    use std::os::unix::fs::PermissionsExt;
    if !nix::unistd::Uid::effective().is_root() {
        return; // Without root, the server has the account of this test.
    }
    let home = create_home();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let error = Embedded::start(settings(home.path())).await.unwrap_err();
    assert!(
        error.to_string().contains("cannot pass"),
        "unexpected: {error}"
    );
}
