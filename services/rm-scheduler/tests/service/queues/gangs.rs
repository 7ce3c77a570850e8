//! Tests of gangs in queues, and of space that is reserved for waiting work.

use super::*;

/// Returns the only part of a gang with this number of members.
fn gang_job(id: &str, user: &str, queue: &str, members: u64, quanta: u64) -> DemandEntry {
    let mut demand = queued_job(id, user, queue, members);
    demand.size.memory_bytes = quanta * GIB;
    let gang = Gang {
        name: "gang".to_owned(),
        min: members,
    };
    demand.queued.as_mut().unwrap().gang = Some(gang);
    demand
}

/// Returns a field of the data that the last round stored for the next: the `reservations`, or the
/// nodes reserved for a `gang`. Returns `None` if the field is empty.
async fn stored_field(fixture: &Fixture, pointer: &str) -> Option<Value> {
    let sql = "select body::text from rm_scheduler.carried where kind = 'queues'";
    let row = fixture.rows(sql).await.into_iter().next()?;
    let body: Value = serde_json::from_str(&row).unwrap();
    let value = body["kept"].pointer(pointer)?.clone();
    value
        .as_object()
        .is_some_and(|it| !it.is_empty())
        .then_some(value)
}

const RESERVATIONS: &str = "/reservations";
const GANG_NODES: &str = "/gang/nodes";

/// Ends small processes until space for the gang is reserved. Returns the reserved nodes.
async fn until_space_is_reserved(fixture: &Fixture) -> Value {
    let mut reserved = None;
    // Space is reserved only after the gang has waited for some time.
    for _ in 0..100_000 {
        let all = fixture.allocations().await;
        let mut plain = allocations_of(&all, "job_plain");
        plain.retain(is_staying);
        let oldest = plain.remove(0);
        fixture.report(&oldest, ContainerState::Ended);
        reserved = until("the space is used or reserved", async || {
            let reserved = stored_field(fixture, GANG_NODES).await;
            let all = fixture.allocations().await;
            let ended = all.get(oldest.id.as_str()).is_none_or(|it| !it.holds());
            let taken = ended && count_held(&all, "job_plain") == 8;
            (reserved.is_some() || taken).then_some(reserved)
        })
        .await;
        if reserved.is_some() {
            break;
        }
    }
    reserved.expect("space is reserved")
}

/// Small jobs use all free space until it is reserved for the gang. Running work goes on (I23).
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_small_jobs_does_not_starve_a_gang() {
    let mut fixture = Fixture::new(&[1, 4, 4]).await;
    set_policy(&fixture, "", &policy_with_queues(&two_half_queues()))
        .await
        .unwrap();
    fixture
        .neighbours
        .submit(&queued_job("job_plain", "ben", "root.c", 20_000));
    until_running(&fixture, "job_plain", 8).await;
    fixture
        .neighbours
        .submit(&gang_job("job_gang", "ben", "root.c", 3, 2));
    let waits = |it: &VerdictEntry| {
        it.reason == WaitReason::GangIncomplete
            && it.detail.contains("space for all of it is reserved")
    };
    let reserved = until_space_is_reserved(&fixture).await;
    fixture
        .until_verdict_matches("job_gang", "has reserved space", waits)
        .await;
    fixture.restart().await;
    fixture.settle().await;
    assert_eq!(
        stored_field(&fixture, GANG_NODES).await,
        Some(reserved.clone())
    );
    let viewer = fixture.client("viewer");
    let found: Queues = viewer.get("/v1/queues?pool=batch").await.unwrap();
    let node_count = reserved.as_object().unwrap().len() as u64;
    assert_eq!(found.pools[0].kept, node_count);

    // The small processes end one after the other. The gang starts as a whole when enough have
    // ended.
    let mut all = fixture.allocations().await;
    for _ in 0..8 {
        let mut plain = allocations_of(&all, "job_plain");
        plain.retain(AllocationEntry::holds);
        if let Some(process) = plain.first() {
            fixture.report(process, ContainerState::Ended);
            let ended =
                |all: &Allocations| all.get(process.id.as_str()).is_none_or(|it| !it.holds());
            fixture.until("the end of the process", ended).await;
        }
        all = fixture.allocations().await;
        let members = count_held(&all, "job_gang");
        assert!(
            members == 0 || members == 3,
            "{members} of 3 members started"
        );
        if members == 3 {
            break;
        }
    }
    let has_started = |all: &Allocations| count_held(all, "job_gang") == 3;
    all = fixture.until("the start of the gang", has_started).await;
    assert_eq!(count_held(&all, "job_gang"), 3);
    assert_eq!(stored_field(&fixture, GANG_NODES).await, None);
    replay_all_rounds(&fixture).await;
}

/// One round preempts enough processes for the whole gang, because its queue has the guarantee.
#[tokio::test(flavor = "multi_thread")]
async fn space_for_a_guaranteed_gang_is_freed_at_once() {
    let fixture = Fixture::new(&[1, 4, 4]).await;
    set_policy(&fixture, "", &policy_with_queues(&two_half_queues()))
        .await
        .unwrap();
    fixture
        .neighbours
        .submit(&queued_job("job_plain", "ben", "root.a", 20_000));
    until_running(&fixture, "job_plain", 8).await;
    fixture
        .neighbours
        .submit(&gang_job("job_gang", "ann", "root.b", 2, 2));
    let has_victim = |all: &Allocations| {
        allocations_of(all, "job_plain")
            .iter()
            .any(|it| it.vacate.is_some())
    };
    let all = fixture.until("a leaving allocation", has_victim).await;
    let mut leaving = allocations_of(&all, "job_plain");
    leaving.retain(|it| it.vacate.is_some());
    assert_eq!(leaving.len(), 4, "all victims in one commit");
    let verdict = fixture
        .until_verdict("job_gang", WaitReason::WaitingForPreemption)
        .await;
    let detail = "0 of the 2 processes it lacks fit";
    assert!(verdict.detail.contains(detail), "{}", verdict.detail);
    let (last, others) = leaving.split_last().unwrap();
    for entry in others {
        assert_eq!(
            entry.vacate.as_ref().unwrap().reason,
            VacateReason::Preempted
        );
        fixture.report(entry, ContainerState::Ended);
        fixture.settle().await;
        let all = fixture.allocations().await;
        assert_eq!(
            (count_held(&all, "job_gang"), count_held(&all, "job_plain")),
            (0, 4)
        );
    }
    fixture.report(last, ContainerState::Ended);
    let has_started = |all: &Allocations| count_held(all, "job_gang") == 2;
    let all = fixture.until("the start of the gang", has_started).await;
    assert_eq!(count_held(&all, "job_plain"), 4);
    replay_all_rounds(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_of_waiting_work_survives_a_restart() {
    let mut fixture = Fixture::new(&[1, 4, 4]).await;
    set_policy(&fixture, "", &policy_with_queues(&two_half_queues()))
        .await
        .unwrap();
    fixture
        .neighbours
        .submit(&queued_job("job_c", "ben", "root.c", 8));
    until_running(&fixture, "job_c", 8).await;
    let mut large = queued_job("job_large", "ben", "root.c", 1);
    large.size.memory_bytes = 4 * GIB;
    fixture.neighbours.submit(&large);
    let before = until("a reserved node", async || {
        stored_field(&fixture, RESERVATIONS).await
    })
    .await;
    fixture.restart().await;
    fixture.settle().await;
    let found: Queues = fixture
        .client("viewer")
        .get("/v1/queues?pool=batch")
        .await
        .unwrap();
    assert_eq!(found.pools[0].kept, 1);
    assert_eq!(stored_field(&fixture, RESERVATIONS).await, Some(before));
}
