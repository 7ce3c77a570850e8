//! `/v1/logs/{work}`: the output of all containers of one piece of work.

use hayward_container_manager_api::{ContainerState, OutputChunk, OutputReport, WorkLogs};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_vocabulary::{AllocationId, Timestamp};

use super::fake_agent::FakeAgent;
use super::fake_scheduler::allocation;
use super::fixture::{Fixture, TIME_LIMIT};

fn allocation_for(work: &str, id: &str, node: &str) -> AllocationEntry {
    AllocationEntry {
        work: work.parse().unwrap(),
        ..allocation(id, node)
    }
}

async fn write_output(agent: &FakeAgent, id: &str, offset: u64, text: &str) {
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

async fn try_read_logs(
    fixture: &Fixture,
    user: &str,
    query: &str,
) -> Result<WorkLogs, ClientError> {
    let path = format!("/v1/logs/{query}");
    fixture
        .client(user)
        .get_with_timeout(&path, TIME_LIMIT)
        .await
}

async fn read_logs(fixture: &Fixture, query: &str) -> WorkLogs {
    try_read_logs(fixture, "ann", query).await.unwrap()
}

/// Returns the container, the missed bytes and the text of each chunk.
fn chunk_texts(logs: &WorkLogs) -> Vec<(&str, u64, &str)> {
    let chunks = logs.chunks.iter();
    chunks
        .map(|it| (it.container.as_str(), it.missed_bytes, it.text.as_str()))
        .collect()
}

/// Checks that `tail` and `since` skip older output.
async fn check_tail_and_since(fixture: &Fixture, arrival: Timestamp) {
    let tail = read_logs(fixture, "svc_a?tail=1").await;
    assert_eq!(chunk_texts(&tail), [("alc_2", 0, "c\n"), ("alc_1", 0, "d")]);
    let tail = read_logs(fixture, "svc_a?tail=2").await;
    let (_, _, first_text) = chunk_texts(&tail)[0];
    assert_eq!(first_text, "b\n");
    assert!(read_logs(fixture, "svc_a?tail=0").await.chunks.is_empty());
    let since = read_logs(fixture, &format!("svc_a?since={arrival}")).await;
    assert_eq!(since.chunks.len(), 2);
    let later = arrival.plus_ms(3_600_000);
    let since = read_logs(fixture, &format!("svc_a?since={later}")).await;
    assert!(since.chunks.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_a_work_item_span_instances_nodes_and_retries() {
    let mut fixture = Fixture::new().await;
    let (mut agent_n1, mut agent_n2) = (
        FakeAgent::new(&fixture, "n1"),
        FakeAgent::new(&fixture, "n2"),
    );
    for (work, allocation, node) in [
        ("svc_a.0", "alc_1", "n1"),
        ("svc_a.1", "alc_2", "n2"),
        ("svc_ab.0", "alc_3", "n2"),
    ] {
        fixture
            .scheduler
            .publish(&allocation_for(work, allocation, node));
    }
    agent_n1.wait_for_container_count(1).await;
    agent_n2.wait_for_container_count(2).await;
    agent_n1
        .report_state("alc_1", ContainerState::Running)
        .await;

    write_output(&agent_n1, "alc_1", 0, "a\nb\n").await;
    write_output(&agent_n2, "alc_2", 0, "c\n").await;
    write_output(&agent_n2, "alc_3", 0, "other work\n").await;
    write_output(&agent_n1, "alc_1", 4, "d").await;
    let all = read_logs(&fixture, "svc_a").await;
    let expected = [
        ("alc_1", 0, "a\nb\n"),
        ("alc_2", 0, "c\n"),
        ("alc_1", 0, "d"),
    ];
    assert_eq!(
        chunk_texts(&all),
        expected,
        "the output is in order of arrival"
    );
    assert_eq!((all.live, all.left_out, all.ended.len()), (2, 0, 0));
    assert!(all.chunks.iter().all(|chunk| chunk.at.is_some()));
    let first = read_logs(&fixture, "svc_a.0").await;
    assert_eq!(
        chunk_texts(&first),
        [("alc_1", 0, "a\nb\n"), ("alc_1", 0, "d")]
    );

    check_tail_and_since(&fixture, all.chunks[1].at.unwrap()).await;

    // A waiting reader is woken by an end, and by the output of a new container: a retry on another
    // node.
    let query = format!("svc_a?wait=25&cursor={}", all.cursor);
    let waiting = read_logs(&fixture, &query);
    let end = async {
        agent_n1.report_state("alc_1", ContainerState::Ended).await;
    };
    let (after_end, ()) = tokio::join!(waiting, end);
    assert_eq!((after_end.ended.len(), after_end.live), (1, 1));
    assert_eq!(after_end.ended[0].exit.as_ref().unwrap().code, Some(3));
    fixture
        .scheduler
        .publish(&allocation_for("svc_a.0", "alc_4", "n2"));
    agent_n2.wait_for_container_count(3).await;
    let query = format!("svc_a?wait=25&cursor={}", after_end.cursor);
    let waiting = read_logs(&fixture, &query);
    let (more, ()) = tokio::join!(waiting, write_output(&agent_n2, "alc_4", 7, "again\n"));
    assert_eq!(
        chunk_texts(&more),
        [("alc_4", 7, "again\n")],
        "a gap is reported"
    );
    assert!(more.ended.is_empty(), "an end is reported once");

    // The cursor is valid after a restart.
    fixture.restart().await;
    let agent_n2 = agent_n2.reconnect(&fixture);
    write_output(&agent_n2, "alc_2", 2, "late\n").await;
    let late = read_logs(&fixture, &format!("svc_a?cursor={}", more.cursor)).await;
    assert_eq!(chunk_texts(&late), [("alc_2", 0, "late\n")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_an_application_are_read_together_or_separately() {
    let fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    fixture
        .scheduler
        .publish(&allocation_for("app_a.0", "alc_1", "n1"));
    fixture
        .scheduler
        .publish(&allocation_for("app_a.1", "alc_2", "n1"));
    fixture
        .scheduler
        .publish(&allocation_for("app_ab.0", "alc_3", "n1"));
    agent.wait_for_container_count(3).await;
    write_output(&agent, "alc_1", 0, "driver\n").await;
    write_output(&agent, "alc_2", 0, "worker\n").await;
    write_output(&agent, "alc_3", 0, "other work\n").await;
    let all = read_logs(&fixture, "app_a").await;
    assert_eq!(
        chunk_texts(&all),
        [("alc_1", 0, "driver\n"), ("alc_2", 0, "worker\n")]
    );
    let works: Vec<&str> = all.chunks.iter().map(|it| it.work.as_str()).collect();
    assert_eq!(works, ["app_a.0", "app_a.1"]);
    let task = read_logs(&fixture, "app_a.1").await;
    assert_eq!(chunk_texts(&task), [("alc_2", 0, "worker\n")]);
    let query = format!("app_a.1?wait=25&cursor={}", task.cursor);
    let waiting = read_logs(&fixture, &query);
    let end = async {
        agent.report_state("alc_2", ContainerState::Ended).await;
    };
    let (after_end, ()) = tokio::join!(waiting, end);
    assert_eq!(
        (after_end.ended.len(), after_end.live),
        (1, 0),
        "the other task is not selected"
    );
    assert!(
        try_read_logs(&fixture, "bob", "app_a")
            .await
            .unwrap()
            .chunks
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_a_work_item_are_bounded_and_visible_to_its_user() {
    let fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    fixture
        .scheduler
        .publish(&allocation_for("job_1", "alc_1", "n1"));
    agent.wait_for_container_count(1).await;
    let text = "x".repeat(60 * 1024);
    for index in 0..30 {
        write_output(&agent, "alc_1", index * 60 * 1024, &text).await;
    }
    // At most the newest six of the 30 chunks are stored. The number of missing bytes is reported.
    let first = read_logs(&fixture, "job_1").await;
    assert!(first.chunks[0].missed_bytes >= 24 * 60 * 1024);
    let next = read_logs(&fixture, &format!("job_1?cursor={}", first.cursor)).await;
    assert!(next.chunks.is_empty());
    assert!(
        try_read_logs(&fixture, "bob", "job_1")
            .await
            .unwrap()
            .chunks
            .is_empty()
    );
    assert!(
        !try_read_logs(&fixture, "operator", "job_1")
            .await
            .unwrap()
            .chunks
            .is_empty()
    );
    assert!(read_logs(&fixture, "job_2").await.chunks.is_empty());

    for (query, code, pointer) in [
        ("job_1?tail=1001", Code::Invalid, "/query/tail"),
        ("job_1?cursor=nonsense", Code::Invalid, "/query/cursor"),
        ("job_1?cursor=&tail=1", Code::Invalid, "/query/cursor"),
        // A wait above its limit is refused.
        ("job_1?wait=26", Code::BadRequest, "/query/wait"),
    ] {
        let refused = try_read_logs(&fixture, "ann", query).await.unwrap_err();
        let problem = refused.problem().unwrap();
        assert_eq!(
            (problem.code, problem.errors[0].pointer.as_str()),
            (code, pointer)
        );
    }
}
