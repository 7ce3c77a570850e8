//! Tests get their own databases, and a server that preserves committed data over a restart.
#![expect(
    clippy::unwrap_used,
    reason = "a test that fails here has found something"
)]

use std::path::Path;
use std::process::{Command, Stdio};

use hayward_postgres::Schema;
use hayward_testkit::{TestServer, database, until};
use sqlx::migrate::Migrator;
use sqlx::{Connection, PgConnection};

static NOTES: Migrator = sqlx::migrate!("tests/migrations");
const SCHEMAS: &[Schema<'static>] = &[Schema {
    name: "notes",
    migrator: &NOTES,
    shared: &[],
}];

async fn insert_word(url: &str, word: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::query("insert into note (word) values ($1)")
        .bind(word)
        .execute(&mut connection)
        .await?;
    connection.close().await
}

async fn read_words(url: &str) -> Vec<String> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar("select word from note order by word")
        .fetch_all(&mut connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn databases_of_one_process_share_a_server_and_no_row() {
    let (one, two) = tokio::join!(database(SCHEMAS), database(SCHEMAS));
    assert_ne!(one.name(), two.name());
    insert_word(&one.url("notes"), "mine").await.unwrap();
    assert_eq!(read_words(&one.url("notes")).await, ["mine"]);
    assert!(read_words(&two.url("notes")).await.is_empty());
}

#[tokio::test]
async fn a_database_of_a_finished_test_is_removed_at_the_next_request() {
    let server = TestServer::start().await;
    let (first, finished) = (
        server.database(SCHEMAS).await,
        server.database(SCHEMAS).await,
    );
    let finished_url = finished.url("notes");
    insert_word(&finished_url, "old").await.unwrap();
    // This connection simulates a service that is still shutting down.
    let open_connection = PgConnection::connect(&finished_url).await.unwrap();
    drop(finished);
    let next = server.database(SCHEMAS).await;
    let error = PgConnection::connect(&finished_url).await.unwrap_err();
    let database_error = error.as_database_error().unwrap();
    assert_eq!(database_error.code().as_deref(), Some("3D000"), "{error}");
    assert!(open_connection.close().await.is_err());
    for database in [&first, &next] {
        insert_word(&database.url("notes"), "mine").await.unwrap();
    }
}

#[tokio::test]
async fn a_private_server_can_be_stopped_killed_and_started_again() {
    let server = TestServer::start().await;
    let database = server.database(SCHEMAS).await;
    let url = database.url("notes");
    insert_word(&url, "first").await.unwrap();
    server.stop().await;
    assert!(insert_word(&url, "lost").await.is_err());
    server.resume().await;
    insert_word(&url, "second").await.unwrap();
    server.kill().await;
    assert!(insert_word(&url, "lost").await.is_err());
    server.resume().await;
    server.restart().await;
    assert_eq!(read_words(&url).await, ["first", "second"]);
}

#[tokio::test]
async fn a_process_that_hangs() {
    // This is the body of a child process of the next test. It does nothing in a normal run.
    if std::env::var_os("HAYWARD_TEST_HANG").is_none() {
        return;
    }
    let database = database(SCHEMAS).await;
    let mut connection = PgConnection::connect(&database.url("postgres"))
        .await
        .unwrap();
    let data: String = sqlx::query_scalar("show data_directory")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    println!("data {data} end");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_killed_test_process_leaves_no_server_and_its_folder_is_removed() {
    use std::io::BufRead;

    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["a_process_that_hangs", "--exact", "--nocapture"])
        .env("HAYWARD_TEST_HANG", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let data = std::io::BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once("data ")?.1.strip_suffix(" end")?.to_owned()))
        .unwrap();
    let pid = std::fs::read_to_string(Path::new(&data).join("postmaster.pid")).unwrap();
    let process = Path::new("/proc").join(pid.lines().next().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    until("the end of the server", async || {
        let line = std::fs::read_to_string(process.join("cmdline"));
        (!line.is_ok_and(|text| text.contains(&data))).then_some(())
    })
    .await;
    let next = TestServer::start().await;
    assert!(!Path::new(&data).exists());
    next.stop().await;
}
