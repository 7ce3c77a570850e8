//! Scenarios of automatic blocks: strategies, which block nodes because of failures on them, and
//! brakes, which limit automatic blocks.

use hayward_blocklist::Settings;
use hayward_blocklist_api::{BlockBatchAnswer, FailureAnswer};
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use hayward_testkit::until;
use serde_json::json;

use super::{add_as_owner, item_body, mark_body};
use crate::fixture::{Fixture, ROOT_PATH};

#[tokio::test(flavor = "multi_thread")]
async fn slow_tasks_block_and_intended_exits_do_not() {
    let fixture = Fixture::with_nodes(10, Settings::default()).await;
    // The offset makes the time of each report different, because an equal report is ignored.
    let report = async |code: &str, intended: bool, offset_ms: i64| -> FailureAnswer {
        let body = json!({
            "job_id": "job_7", "cause": "reported", "cause_code": code, "intended": intended,
            "locations": [{ "node": "n1", "worker": "alc_1" }],
            "timestamp": SystemClock.now().minus_ms(1_000 - offset_ms.unsigned_abs()),
        });
        let path = format!("{ROOT_PATH}/failures");
        fixture.owner().post(&path, &body, None).await.unwrap()
    };
    fixture
        .set_strategy("slow-task", json!({ "duration_ms": 0 }))
        .await;
    assert!(
        report("slow_task", false, 1).await.items.is_empty(),
        "a duration of 0 disables the strategy (scenario 21)"
    );
    fixture.set_strategy("cause-class", json!({})).await;
    assert!(
        report("disk_full", true, 2).await.items.is_empty(),
        "an intended exit is not a failure (scenario 23)"
    );
    assert!(
        report("preemption", false, 3).await.items.is_empty(),
        "a preemption is an intended exit (scenario 23)"
    );
    fixture.set_strategy("slow-task", json!({})).await;
    let slow = report("slow_task", false, 4).await.items;
    assert_eq!(slow[0].sources, ["slow-task:job_7".to_owned()].into());
    let longer = until("a repeated report extends the end", async || {
        report(
            "slow_task",
            false,
            5 + i64::try_from(fixture.revision()).unwrap(),
        )
        .await
        .items
        .pop()
    })
    .await;
    assert!(longer.end > slow[0].end);
    assert_eq!(longer.removal_no, slow[0].removal_no);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_third_automatic_block_of_ten_nodes_is_refused_with_numbers() {
    let fixture = Fixture::with_nodes(10, Settings::default()).await;
    add_as_owner(&fixture, "detector:disks", item_body("n1")).await;
    add_as_owner(&fixture, "detector:disks", item_body("n2")).await;
    let body = json!({ "items": [item_body("n1"), item_body("n3")], "source": "detector:disks" });
    let path = format!("{ROOT_PATH}/items");
    let refused = fixture
        .owner()
        .post::<_, BlockBatchAnswer>(&path, &body, None)
        .await;
    let error = refused.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!(problem.status().as_u16(), 422);
    assert!(
        problem.detail.contains("10 ready nodes"),
        "{}",
        problem.detail
    );
    assert_eq!(problem.errors[0].pointer, "/items/1");
    assert_eq!(
        fixture.overview().await.nodes.len(),
        2,
        "the refused request changed nothing (BL-9)"
    );

    let (status, result) = fixture.put_block("nodes/n3", &mark_body(60_000)).await;
    assert_eq!(status, 201, "operators are exempt from the brakes");
    assert!(
        result.warnings[0].contains("3 of the 10 ready nodes"),
        "{:?}",
        result.warnings
    );
    assert_eq!(
        add_as_owner(&fixture, "detector:disks", item_body("n1"))
            .await
            .added,
        0
    );
}
