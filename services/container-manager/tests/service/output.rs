//! Output of single containers: reports of agents, reads, limits, and refusals.

use hayward_container_manager_api::{ContainerState, Logs, OutputChunk, OutputReport};
use hayward_publication::audit::AuditPage;
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_testkit::until;
use hayward_vocabulary::AllocationId;

use super::fake_agent::{FakeAgent, container_report};
use super::fake_scheduler::allocation;
use super::fixture::{Fixture, TIME_LIMIT};

fn chunk(id: &str, offset: u64, text: &str) -> OutputChunk {
    let id = AllocationId::new(id).unwrap();
    OutputChunk {
        id,
        offset,
        text: text.to_owned(),
        bytes: text.len() as u64,
    }
}

async fn write_output(agent: &FakeAgent, chunks: Vec<OutputChunk>) -> Result<(), ClientError> {
    let path = format!("/v1/nodes/{}/output", agent.node);
    agent.client.put(&path, &OutputReport { chunks }).await
}

async fn read_logs(fixture: &Fixture, id: &str, query: &str) -> Logs {
    let path = format!("/v1/containers/{id}/logs{query}");
    fixture
        .client("ann")
        .get_with_timeout(&path, TIME_LIMIT)
        .await
        .unwrap()
}

/// Writes a chunk of `alc_1` after the other tasks had a turn.
async fn write_output_later(agent: &FakeAgent, offset: u64, text: &str) {
    tokio::task::yield_now().await;
    write_output(agent, vec![chunk("alc_1", offset, text)])
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_stored_once_in_order_and_outlives_its_container() {
    let mut fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    fixture.scheduler.publish(&allocation("alc_2", "n2"));
    agent.wait_for_container("alc_1").await;
    fixture
        .wait_for_state("alc_2", ContainerState::Ordered)
        .await;
    agent.report_state("alc_1", ContainerState::Running).await;

    write_output(
        &agent,
        vec![chunk("alc_1", 0, "one "), chunk("alc_1", 4, "two ")],
    )
    .await
    .unwrap();
    // A repeated chunk, a chunk cut at another offset, and a chunk of an unknown container.
    write_output(
        &agent,
        vec![
            chunk("alc_1", 0, "one "),
            chunk("alc_1", 2, "e two three\0"),
        ],
    )
    .await
    .unwrap();
    write_output(&agent, vec![chunk("alc_9", 0, "?")])
        .await
        .unwrap();
    let stored = read_logs(&fixture, "alc_1", "").await;
    assert_eq!(stored.text, "one two three\u{fffd}");
    assert_eq!(
        (stored.offset, stored.next_offset, stored.ended),
        (0, 14, false)
    );
    assert_eq!(
        read_logs(&fixture, "alc_1", "?offset=4").await.text,
        "two three\u{fffd}"
    );
    assert_eq!(read_logs(&fixture, "alc_2", "").await.text, "");

    // A waiting reader is woken by new output.
    let waiting = read_logs(&fixture, "alc_1", "?offset=14&wait=25");
    let (more, ()) = tokio::join!(waiting, write_output_later(&agent, 14, "four"));
    assert_eq!((more.text.as_str(), more.next_offset), ("four", 18));

    fixture.restart().await;
    let mut agent = agent.reconnect(&fixture);
    agent.report_state("alc_1", ContainerState::Ended).await;
    fixture.scheduler.remove("alc_1");
    fixture
        .wait_until("the container is archived", |all| {
            !all.contains_key("alc_1")
        })
        .await;
    // The end may be reported before the last output. A waiting reader receives that output too.
    let waiting = read_logs(&fixture, "alc_1", "?offset=18&wait=25");
    let (more, ()) = tokio::join!(waiting, write_output_later(&agent, 18, " last words"));
    assert_eq!((more.text.as_str(), more.ended), (" last words", true));
    let stored = read_logs(&fixture, "alc_1", "?offset=14&wait=25").await;
    assert_eq!(
        (stored.text.as_str(), stored.ended),
        ("four last words", true)
    );
    let end = read_logs(&fixture, "alc_1", "?offset=29&wait=25").await;
    assert_eq!((end.text.as_str(), end.ended), ("", true));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_newest_output_is_stored() {
    let fixture = Fixture::with_settings(|settings| {
        settings.keep_buried = 1;
        settings.keep_output_bytes = 400 * 1024;
        settings.trim_ms = 20;
    })
    .await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    for id in ["alc_1", "alc_2", "alc_3"] {
        fixture.scheduler.publish(&allocation(id, "n1"));
    }
    agent.wait_for_container_count(3).await;
    let size = 32 * 1024_u64;
    let text = "x".repeat(32 * 1024);
    for index in 0..10 {
        write_output(&agent, vec![chunk("alc_1", index * size, &text)])
            .await
            .unwrap();
    }
    let stored = read_logs(&fixture, "alc_1", "").await;
    assert_eq!((stored.offset, stored.next_offset), (2 * size, 10 * size));
    // A gap is output that the agent had to drop. A response ends before the gap, and the next
    // response begins after the gap.
    write_output(&agent, vec![chunk("alc_1", 10 * size + 5, "after")])
        .await
        .unwrap();
    let after_gap = read_logs(&fixture, "alc_1", &format!("?offset={}", 10 * size)).await;
    assert_eq!(
        (after_gap.offset, after_gap.text.as_str()),
        (10 * size + 5, "after")
    );

    // The output of both containers exceeds the limit. The output of the container archived first
    // is deleted first.
    for index in 0..5 {
        write_output(&agent, vec![chunk("alc_2", index * size, &text)])
            .await
            .unwrap();
    }
    for id in ["alc_1", "alc_2"] {
        agent.report_state(id, ContainerState::Ended).await;
        fixture.scheduler.remove(id);
        fixture
            .wait_until("the container is archived", |all| !all.contains_key(id))
            .await;
    }
    until("the container archived first is deleted", async || {
        fixture
            .show_container("ann", "alc_1")
            .await
            .is_err()
            .then_some(())
    })
    .await;
    assert_eq!(read_logs(&fixture, "alc_2", "").await.next_offset, 5 * size);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_over_a_limit_is_refused_with_a_pointer() {
    let fixture = Fixture::new().await;
    let agent = FakeAgent::new(&fixture, "n1");
    let refusals = [
        (
            vec![
                chunk("alc_1", 0, "a"),
                chunk("alc_1", 1, &"x".repeat(65 * 1024)),
            ],
            "/chunks/1/text",
        ),
        (
            vec![OutputChunk {
                bytes: 1,
                ..chunk("alc_1", 0, "abcd")
            }],
            "/chunks/0/bytes",
        ),
        (vec![chunk("alc_1", u64::MAX, "a")], "/chunks/0/offset"),
        (vec![chunk("alc_1", 0, "a"); 257], "/chunks"),
    ];
    for (chunks, pointer) in refusals {
        let refused = write_output(&agent, chunks).await.unwrap_err();
        let problem = refused.problem().unwrap();
        assert_eq!(problem.code, Code::Invalid);
        assert_eq!(problem.errors[0].pointer, pointer);
    }
}

/// Returns the status and the pointers of a refusal.
fn status_and_pointers(refused: Result<(), ClientError>) -> (u16, Vec<String>) {
    let error = refused.unwrap_err();
    let problem = error.problem().unwrap();
    let pointers = problem.errors.iter().map(|fault| fault.pointer.clone());
    (problem.status().as_u16(), pointers.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_about_another_nodes_container_is_refused_and_audited() {
    let fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    fixture.scheduler.publish(&allocation("alc_2", "n2"));
    agent.wait_for_container("alc_1").await;
    fixture
        .wait_for_state("alc_2", ContainerState::Ordered)
        .await;

    let reports = ["alc_1", "alc_2"].map(|id| container_report(id, ContainerState::Running));
    let report = agent.next_report(reports.to_vec());
    let refused = agent.send(&report).await.map(drop);
    assert_eq!(
        status_and_pointers(refused),
        (403, vec!["/containers/1/id".to_owned()])
    );
    let chunks = vec![chunk("alc_2", 0, "!"), chunk("alc_1", 0, "one")];
    let refused = write_output(&agent, chunks).await;
    assert_eq!(
        status_and_pointers(refused),
        (403, vec!["/chunks/0/id".to_owned()])
    );
    let wait_until_ordered = |id| fixture.wait_for_state(id, ContainerState::Ordered);
    let (own, other) = tokio::join!(wait_until_ordered("alc_1"), wait_until_ordered("alc_2"));
    assert_eq!((own.node.as_str(), other.node.as_str()), ("n1", "n2"));

    agent.report_state("alc_1", ContainerState::Running).await;
    fixture
        .wait_for_state("alc_1", ContainerState::Running)
        .await;
    let auditor = fixture.client("auditor");
    let routes = ["/v1/nodes/{node}/report", "/v1/nodes/{node}/output"];
    until("both refusals are in the audit log", async || {
        let page: AuditPage = auditor.get("/v1/audit?limit=1000").await.ok()?;
        let refused = |route: &&str| {
            let mut records = page.records.iter();
            records
                .any(|it| it.actor == "agent-n1" && it.route == **route && it.status == Some(403))
        };
        routes.iter().all(refused).then_some(())
    })
    .await;
}
