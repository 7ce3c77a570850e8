//! Tests of `/v1/blocklist/items`: items are added, merged, refused and removed.

use hayward_blocklist_api::{
    BlockAction, BlockAnswer, BlockBatch, BlockBatchAnswer, BlockEvent, BlockHistory, BlockKind,
    BlockList, BlockOutcome, BlockRequest,
};
use serde_json::{Value, json};

use crate::fixture::{Fixture, ITEMS_PATH, default_item, permanent_item, refusal, refusal_status};

#[tokio::test(flavor = "multi_thread")]
async fn a_put_is_added_unchanged_upgraded_or_merged() {
    let fixture = Fixture::new().await;
    let (status, first) = fixture.put_item(&permanent_item("k1")).await;
    assert_eq!(
        (status, first.outcome),
        (201, BlockOutcome::Added),
        "a new item is added (scenario 1)"
    );
    let item = first.item.unwrap();
    assert_eq!((item.end, item.removal_no), (None, 0));
    assert_eq!(item.sources, ["manual:ann".to_owned()].into());

    let revision = fixture.revision();
    let (status, same) = fixture.put_item(&permanent_item("k1")).await;
    assert_eq!(
        (status, same.outcome),
        (200, BlockOutcome::None),
        "an equal item changes nothing (scenario 2)"
    );
    let (_, earlier) = fixture.put_item(&default_item("k1")).await;
    assert_eq!(
        earlier.outcome,
        BlockOutcome::None,
        "permanent is later than any end (scenario 5)"
    );
    assert_eq!(
        fixture.revision(),
        revision,
        "an unchanged item is not written or published (BL-2)"
    );

    let evacuate = BlockRequest {
        action: BlockAction::Evacuate,
        cause: "ECC errors".into(),
        duration_ms: Some(1000),
        ..default_item("k1")
    };
    let (status, upgraded) = fixture.put_item(&evacuate).await;
    assert_eq!(
        (status, upgraded.outcome),
        (202, BlockOutcome::Upgraded),
        "an evacuation is stronger than a mark (scenario 6)"
    );
    let item = upgraded.item.unwrap();
    assert_eq!(
        (item.cause.as_str(), item.end),
        ("ECC errors, disk slow", None)
    );
    let (_, merged) = fixture
        .put_item(&BlockRequest {
            cause: "net".into(),
            ..default_item("k1")
        })
        .await;
    assert_eq!(
        merged.outcome,
        BlockOutcome::Merged,
        "a new cause is merged (scenario 7)"
    );
    assert_eq!(
        merged.item.unwrap().action,
        BlockAction::Evacuate,
        "the stronger action remains (scenario 7)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_of_a_batch_are_reported_at_once() {
    let fixture = Fixture::new().await;
    let refused_put = async |body: Value| {
        refusal(
            fixture
                .operator()
                .put::<_, BlockAnswer>(ITEMS_PATH, &body)
                .await,
        )
    };
    let valid = json!({
        "type": "NODE", "identifier": "k1", "action": "MARK_BLOCKLISTED", "cause": "disk"
    });
    let with_changes = |changes: Value| {
        let mut body = valid.clone();
        body.as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        body
    };
    let end = "2026-11-21T10:42:00Z";
    // Each case has the changed fields and the pointers of the expected faults.
    let cases = [
        (json!({ "type": "RACK" }), vec!["/type"]),
        (json!({ "identifier": "" }), vec!["/identifier"]),
        (json!({ "identifier": "../k1" }), vec!["/identifier"]),
        (json!({ "action": "DESTROY" }), vec!["/action"]),
        (json!({ "cause": " " }), vec!["/cause"]),
        (json!({ "duration_ms": -1 }), vec!["/duration_ms"]),
        (json!({ "end": "tomorrow" }), vec!["/end"]),
        (
            json!({ "end": end, "duration_ms": 5 }),
            vec!["/duration_ms"],
        ),
        (json!({ "end": end, "permanent": true }), vec!["/permanent"]),
        (
            json!({ "type": "", "identifier": "", "action": "", "cause": "" }),
            vec!["/type", "/identifier", "/action", "/cause"],
        ),
    ];
    for (changes, pointers) in cases {
        assert_eq!(
            refused_put(with_changes(changes.clone())).await,
            (422, pointers.iter().map(ToString::to_string).collect()),
            "{changes}"
        );
    }
    assert_eq!(
        refused_put(with_changes(json!({ "allow": 1 }))).await,
        (422, vec!["/allow".to_owned()])
    );
    assert_eq!(
        refused_put(with_changes(json!({ "duration_ms": "x" })))
            .await
            .0,
        422
    );
    let list: BlockList = fixture.viewer().get(ITEMS_PATH).await.unwrap();
    assert!(list.items.is_empty(), "no item was added");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_may_write() {
    let fixture = Fixture::new().await;
    for (client, status) in [
        (fixture.viewer(), 403),
        (fixture.scheduler_client(), 403),
        (fixture.anonymous_client(), 401),
    ] {
        assert_eq!(
            refusal_status(
                client
                    .put::<_, BlockAnswer>(ITEMS_PATH, &default_item("k1"))
                    .await
            ),
            status
        );
        let removal = client
            .delete::<Option<()>>(&format!("{ITEMS_PATH}/node/k1"))
            .await;
        assert_eq!(refusal_status(removal), status);
    }
    assert_eq!(
        refusal_status(
            fixture
                .anonymous_client()
                .get::<BlockList>(ITEMS_PATH)
                .await
        ),
        401
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_item_is_not_restored_by_a_crash_or_an_older_copy() {
    let mut fixture = Fixture::new().await;
    fixture.put_item(&permanent_item("k3")).await;
    let copy = BlockRequest {
        removal_no: Some(0),
        ..permanent_item("k3")
    };
    assert_eq!(
        fixture.add_item(&copy).await.reason,
        None,
        "the copy is not stale yet"
    );
    let path = format!("{ITEMS_PATH}/node/k3");
    let _: Option<()> = fixture
        .operator()
        .delete(&format!("{path}?reason=new%20disk"))
        .await
        .unwrap();
    assert_eq!(
        refusal_status(fixture.operator().delete::<Option<()>>(&path).await),
        404
    );
    assert_eq!(refusal_status(fixture.show_item("k3").await), 404);

    fixture.crash_and_restart().await;
    let (status, stale) = fixture.put_item(&copy).await;
    assert_eq!(
        (status, stale.outcome),
        (200, BlockOutcome::None),
        "a copy from before the removal is ignored (scenario 19)"
    );
    assert_eq!(stale.reason.as_deref(), Some("STALE_COPY"));
    let (status, fresh) = fixture.put_item(&permanent_item("k3")).await;
    assert_eq!(
        (status, fresh.item.unwrap().removal_no),
        (201, 1),
        "a new item is added (scenario 20)"
    );

    let history: BlockHistory = fixture.viewer().get("/v1/blocklist/history").await.unwrap();
    let events: Vec<BlockEvent> = history.changes.iter().map(|change| change.event).collect();
    assert_eq!(
        events,
        [BlockEvent::Added, BlockEvent::Removed, BlockEvent::Added]
    );
    let removed = &history.changes[1];
    assert_eq!(
        (removed.by.as_deref(), removed.why.as_deref()),
        (Some("ann"), Some("new disk"))
    );
    assert_eq!(removed.item.cause, "disk slow");
}

/// Asserts that a list of three items has two pages, and that the type of an item is checked.
async fn assert_pages_of_two(fixture: &Fixture) {
    let page: BlockList = fixture
        .viewer()
        .get(&format!("{ITEMS_PATH}?limit=2"))
        .await
        .unwrap();
    assert_eq!(page.items.len(), 2);
    let next = format!("{ITEMS_PATH}?limit=2&cursor={}", page.next_cursor.unwrap());
    let page: BlockList = fixture.viewer().get(&next).await.unwrap();
    assert_eq!(page.items[0].key(), "worker/alc_1");
    assert_eq!(page.next_cursor, None);
    let invalid_type = fixture
        .viewer()
        .get::<BlockList>(&format!("{ITEMS_PATH}/rack/k1"))
        .await;
    assert_eq!(refusal(invalid_type), (400, vec!["/path/type".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_atomic_and_has_one_result_per_key() {
    let fixture = Fixture::new().await;
    fixture.put_item(&permanent_item("k1")).await;
    let worker = BlockRequest {
        kind: BlockKind::Worker,
        identifier: "alc_1".into(),
        ..permanent_item("unused")
    };
    let evacuate = BlockRequest {
        action: BlockAction::Evacuate,
        ..permanent_item("k2")
    };
    let items = vec![permanent_item("k1"), permanent_item("k2"), evacuate, worker];
    let batch = BlockBatch {
        items: items.clone(),
        source: None,
    };
    let operator = fixture.operator();
    let batch_result: BlockBatchAnswer = operator.post(ITEMS_PATH, &batch, None).await.unwrap();
    let outcomes: Vec<String> = batch_result
        .results
        .iter()
        .map(|result| format!("{:?}", result.outcome))
        .collect();
    assert_eq!(outcomes, ["None", "Added", "Added"]);
    assert_eq!(
        (
            batch_result.added,
            batch_result.upgraded,
            batch_result.unchanged,
            batch_result.stale
        ),
        (2, 0, 1, 0)
    );

    let mut items = items;
    items.insert(1, default_item(""));
    items.push(default_item("k9"));
    let invalid = BlockBatch {
        items,
        source: None,
    };
    let refused = operator
        .post::<_, BlockBatchAnswer>(ITEMS_PATH, &invalid, None)
        .await;
    assert_eq!(
        refusal(refused),
        (422, vec!["/items/1/identifier".to_owned()])
    );
    assert_eq!(
        refusal_status(fixture.show_item("k9").await),
        404,
        "no item of the batch is added"
    );
    assert_pages_of_two(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_key_has_one_merged_result() {
    let fixture = Fixture::new().await;
    let evacuate = BlockRequest {
        action: BlockAction::Evacuate,
        ..permanent_item("k1")
    };
    let batch = BlockBatch {
        items: vec![permanent_item("k1"), permanent_item("k2"), evacuate],
        source: None,
    };
    let batch_result: BlockBatchAnswer = fixture
        .operator()
        .post(ITEMS_PATH, &batch, None)
        .await
        .unwrap();
    assert_eq!(
        (batch_result.added, batch_result.upgraded),
        (2, 0),
        "the repeated key counts once, as added (section 5.3)"
    );
    let [repeated, _] = batch_result.results.as_slice() else {
        panic!("{:?}", batch_result.results);
    };
    let item = repeated.item.as_ref().unwrap();
    assert_eq!(
        (repeated.outcome, item.action),
        (BlockOutcome::Added, BlockAction::Evacuate)
    );
    let history: BlockHistory = fixture.viewer().get("/v1/blocklist/history").await.unwrap();
    let changes = history
        .changes
        .iter()
        .map(|change| (change.event, &change.item));
    let changes: Vec<_> = changes
        .filter(|(_, item)| item.identifier == "k1")
        .collect();
    assert_eq!(changes, [(BlockEvent::Added, item)]);
}
