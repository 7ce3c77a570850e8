//! Output of all containers of one work item.

use hayward_container_manager_api::{ContainerState, OutputChunk, OutputReport, WorkLogs};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_vocabulary::AllocationId;

use super::agent::{Agent, reported};
use super::fixture::{Fixture, TIME_LIMIT};
use super::upstream::allocation;

fn allocation_of(work: &str, id: &str, node: &str) -> AllocationEntry {
    AllocationEntry {
        work: work.parse().unwrap(),
        ..allocation(id, node)
    }
}

async fn write(agent: &Agent, id: &str, offset: u64, text: &str) {
    let chunk = OutputChunk {
        id: AllocationId::new(id).unwrap(),
        offset,
        text: text.to_owned(),
        bytes: text.len() as u64,
    };
    let path = format!("/v1/nodes/{}/output", agent.node);
    let report = OutputReport {
        chunks: vec![chunk],
    };
    agent.client.put::<_, ()>(&path, &report).await.unwrap();
}

async fn ask(fixture: &Fixture, user: &str, query: &str) -> Result<WorkLogs, ClientError> {
    let path = format!("/v1/logs/{query}");
    fixture
        .client(user)
        .get_with_timeout(&path, TIME_LIMIT)
        .await
}

async fn read(fixture: &Fixture, query: &str) -> WorkLogs {
    ask(fixture, "ann", query).await.unwrap()
}

fn pieces_of(logs: &WorkLogs) -> Vec<(&str, u64, &str)> {
    let pieces = logs.pieces.iter();
    pieces
        .map(|it| (it.container.as_str(), it.missed_bytes, it.text.as_str()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_a_work_item_span_instances_nodes_and_retries() {
    let mut fixture = Fixture::new().await;
    let (mut one, mut two) = (Agent::new(&fixture, "n1"), Agent::new(&fixture, "n2"));
    for (work, allocation, node) in [
        ("svc_a.0", "alc_1", "n1"),
        ("svc_a.1", "alc_2", "n2"),
        ("svc_ab.0", "alc_3", "n2"),
    ] {
        fixture.upstream.put(&allocation_of(work, allocation, node));
    }
    one.until("alc_1", |desired| desired.len() == 1).await;
    two.until("two", |desired| desired.len() == 2).await;
    one.report(vec![reported("alc_1", ContainerState::Running)])
        .await;

    write(&one, "alc_1", 0, "a\nb\n").await;
    write(&two, "alc_2", 0, "c\n").await;
    write(&two, "alc_3", 0, "stranger\n").await;
    write(&one, "alc_1", 4, "d").await;
    let all = read(&fixture, "svc_a").await;
    let expected = [
        ("alc_1", 0, "a\nb\n"),
        ("alc_2", 0, "c\n"),
        ("alc_1", 0, "d"),
    ];
    assert_eq!(pieces_of(&all), expected, "in the order it arrived");
    assert_eq!((all.live, all.left_out, all.ended.len()), (2, 0, 0));
    assert!(all.pieces.iter().all(|piece| piece.at.is_some()));
    let first = read(&fixture, "svc_a.0").await;
    assert_eq!(
        pieces_of(&first),
        [("alc_1", 0, "a\nb\n"), ("alc_1", 0, "d")]
    );

    // `tail` and `since` skip older output.
    let tail = read(&fixture, "svc_a?tail=1").await;
    assert_eq!(pieces_of(&tail), [("alc_2", 0, "c\n"), ("alc_1", 0, "d")]);
    let tail = read(&fixture, "svc_a?tail=2").await;
    assert_eq!(pieces_of(&tail)[0].2, "b\n");
    assert!(read(&fixture, "svc_a?tail=0").await.pieces.is_empty());
    let at = all.pieces[1].at.unwrap();
    let since = read(&fixture, &format!("svc_a?since={at}")).await;
    assert_eq!(since.pieces.len(), 2);
    let later = at.plus_ms(3_600_000);
    let since = read(&fixture, &format!("svc_a?since={later}")).await;
    assert!(since.pieces.is_empty());

    // A waiting reader is woken, also by a new container: a retry on another node.
    let waits = format!("svc_a?wait=25&cursor={}", all.cursor);
    let waiting = read(&fixture, &waits);
    let end = async {
        one.report(vec![reported("alc_1", ContainerState::Ended)])
            .await;
    };
    let (over, ()) = tokio::join!(waiting, end);
    assert_eq!((over.ended.len(), over.live), (1, 1));
    assert_eq!(over.ended[0].exit.as_ref().unwrap().code, Some(3));
    fixture
        .upstream
        .put(&allocation_of("svc_a.0", "alc_4", "n2"));
    two.until("a retry", |desired| desired.len() == 3).await;
    let waits = format!("svc_a?wait=25&cursor={}", over.cursor);
    let waiting = read(&fixture, &waits);
    let (more, ()) = tokio::join!(waiting, write(&two, "alc_4", 7, "again\n"));
    assert_eq!(
        pieces_of(&more),
        [("alc_4", 7, "again\n")],
        "a gap is reported"
    );
    assert!(more.ended.is_empty(), "an end is reported once");

    // The cursor is valid after a restart.
    fixture.restart().await;
    let two = two.at(&fixture);
    write(&two, "alc_2", 2, "late\n").await;
    let rest = read(&fixture, &format!("svc_a?cursor={}", more.cursor)).await;
    assert_eq!(pieces_of(&rest), [("alc_2", 0, "late\n")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_an_application_are_read_together_and_one_by_one() {
    let fixture = Fixture::new().await;
    let mut one = Agent::new(&fixture, "n1");
    fixture
        .upstream
        .put(&allocation_of("app_a.0", "alc_1", "n1"));
    fixture
        .upstream
        .put(&allocation_of("app_a.1", "alc_2", "n1"));
    fixture
        .upstream
        .put(&allocation_of("app_ab.0", "alc_3", "n1"));
    one.until("three", |desired| desired.len() == 3).await;
    write(&one, "alc_1", 0, "driver\n").await;
    write(&one, "alc_2", 0, "worker\n").await;
    write(&one, "alc_3", 0, "stranger\n").await;
    let all = read(&fixture, "app_a").await;
    assert_eq!(
        pieces_of(&all),
        [("alc_1", 0, "driver\n"), ("alc_2", 0, "worker\n")]
    );
    let works: Vec<&str> = all.pieces.iter().map(|it| it.work.as_str()).collect();
    assert_eq!(works, ["app_a.0", "app_a.1"]);
    let task = read(&fixture, "app_a.1").await;
    assert_eq!(pieces_of(&task), [("alc_2", 0, "worker\n")]);
    let waits = format!("app_a.1?wait=25&cursor={}", task.cursor);
    let waiting = read(&fixture, &waits);
    let end = async {
        one.report(vec![reported("alc_2", ContainerState::Ended)])
            .await;
    };
    let (over, ()) = tokio::join!(waiting, end);
    assert_eq!(
        (over.ended.len(), over.live),
        (1, 0),
        "the other task is not selected"
    );
    assert!(
        ask(&fixture, "bob", "app_a")
            .await
            .unwrap()
            .pieces
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_a_work_item_are_bounded_and_visible_to_its_user() {
    let fixture = Fixture::new().await;
    let mut agent = Agent::new(&fixture, "n1");
    fixture.upstream.put(&allocation_of("job_1", "alc_1", "n1"));
    agent.until("alc_1", |desired| desired.len() == 1).await;
    let text = "x".repeat(60 * 1024);
    for at in 0..30 {
        write(&agent, "alc_1", at * 60 * 1024, &text).await;
    }
    // Only the newest output is stored; the missing bytes are reported.
    let first = read(&fixture, "job_1").await;
    assert!(first.pieces[0].missed_bytes >= 24 * 60 * 1024);
    let read_on = read(&fixture, &format!("job_1?cursor={}", first.cursor)).await;
    assert!(read_on.pieces.is_empty());
    assert!(
        ask(&fixture, "bob", "job_1")
            .await
            .unwrap()
            .pieces
            .is_empty()
    );
    assert!(
        !ask(&fixture, "operator", "job_1")
            .await
            .unwrap()
            .pieces
            .is_empty()
    );
    assert!(read(&fixture, "job_2").await.pieces.is_empty());

    for (query, code, pointer) in [
        ("job_1?tail=1001", Code::Invalid, "/query/tail"),
        ("job_1?cursor=nonsense", Code::Invalid, "/query/cursor"),
        ("job_1?cursor=&tail=1", Code::Invalid, "/query/cursor"),
        // A wait above its limit is refused.
        ("job_1?wait=26", Code::BadRequest, "/query/wait"),
    ] {
        let refused = ask(&fixture, "ann", query).await.unwrap_err();
        let problem = refused.problem().unwrap();
        assert_eq!(
            (problem.code, problem.errors[0].pointer.as_str()),
            (code, pointer)
        );
    }
}
