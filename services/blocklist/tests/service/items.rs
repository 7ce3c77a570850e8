//! Items: adding, merging, refusing and removing.

use hayward_blocklist_api::{
    BlockAction, BlockAnswer, BlockBatch, BlockBatchAnswer, BlockEvent, BlockHistory, BlockKind,
    BlockList, BlockOutcome, BlockRequest,
};
use serde_json::{Value, json};

use crate::fixture::{Fixture, ITEMS, for_ever, mark, refusal};

#[tokio::test(flavor = "multi_thread")]
async fn each_request_has_its_outcome() {
    let fixture = Fixture::new().await;
    let (status, first) = fixture.put(&for_ever("k1")).await;
    assert_eq!((status, first.outcome), (201, BlockOutcome::Added), "1");
    let item = first.item.unwrap();
    assert_eq!((item.end, item.removal_no), (None, 0));
    assert_eq!(item.sources, ["manual:ann".to_owned()].into());

    let revision = fixture.revision();
    let (status, same) = fixture.put(&for_ever("k1")).await;
    assert_eq!((status, same.outcome), (200, BlockOutcome::None), "2");
    let (_, earlier) = fixture.put(&mark("k1")).await;
    assert_eq!(
        earlier.outcome,
        BlockOutcome::None,
        "5: permanent is later than any end"
    );
    assert_eq!(
        fixture.revision(),
        revision,
        "nothing is written and no follower wakes up (BL-2)"
    );

    let evacuate = BlockRequest {
        action: BlockAction::Evacuate,
        cause: "ECC errors".into(),
        duration_ms: Some(1000),
        ..mark("k1")
    };
    let (status, upgraded) = fixture.put(&evacuate).await;
    assert_eq!(
        (status, upgraded.outcome),
        (202, BlockOutcome::Upgraded),
        "6"
    );
    let item = upgraded.item.unwrap();
    assert_eq!(
        (item.cause.as_str(), item.end),
        ("ECC errors, disk slow", None)
    );
    let (_, merged) = fixture
        .put(&BlockRequest {
            cause: "net".into(),
            ..mark("k1")
        })
        .await;
    assert_eq!(merged.outcome, BlockOutcome::Merged, "7");
    assert_eq!(
        merged.item.unwrap().action,
        BlockAction::Evacuate,
        "7: the action stays"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_of_a_batch_are_reported_at_once() {
    let fixture = Fixture::new().await;
    let put =
        async |body: Value| refusal(fixture.operator().put::<_, BlockAnswer>(ITEMS, &body).await);
    let good = json!({
        "type": "NODE", "identifier": "k1", "action": "MARK_BLOCKLISTED", "cause": "disk"
    });
    let with = |changes: Value| {
        let mut body = good.clone();
        body.as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        body
    };
    let end = "2026-11-21T10:42:00Z";
    // changed fields -> pointers of the faults
    let table = [
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
    for (changes, pointers) in table {
        assert_eq!(
            put(with(changes.clone())).await,
            (422, pointers.iter().map(ToString::to_string).collect()),
            "{changes}"
        );
    }
    assert_eq!(
        put(with(json!({ "allow": 1 }))).await,
        (422, vec!["/allow".to_owned()])
    );
    assert_eq!(put(with(json!({ "duration_ms": "x" }))).await.0, 422);
    let list: BlockList = fixture.viewer().get(ITEMS).await.unwrap();
    assert!(list.items.is_empty(), "nothing of it was taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_may_write() {
    let fixture = Fixture::new().await;
    for (client, status) in [
        (fixture.viewer(), 403),
        (fixture.scheduler(), 403),
        (fixture.stranger(), 401),
    ] {
        assert_eq!(
            refusal(client.put::<_, BlockAnswer>(ITEMS, &mark("k1")).await).0,
            status
        );
        let gone = client
            .delete::<Option<()>>(&format!("{ITEMS}/node/k1"))
            .await;
        assert_eq!(refusal(gone).0, status);
    }
    assert_eq!(
        refusal(fixture.stranger().get::<BlockList>(ITEMS).await).0,
        401
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_survives_a_crash_and_older_copies() {
    let mut fixture = Fixture::new().await;
    fixture.put(&for_ever("k3")).await;
    let copy = BlockRequest {
        removal_no: Some(0),
        ..for_ever("k3")
    };
    assert_eq!(fixture.put(&copy).await.1.reason, None, "not stale yet");
    let path = format!("{ITEMS}/node/k3");
    let _: Option<()> = fixture
        .operator()
        .delete(&format!("{path}?reason=new%20disk"))
        .await
        .unwrap();
    assert_eq!(
        refusal(fixture.operator().delete::<Option<()>>(&path).await).0,
        404
    );
    assert_eq!(refusal(fixture.show("k3").await).0, 404);

    fixture.kill_and_restart().await;
    let (status, stale) = fixture.put(&copy).await;
    assert_eq!((status, stale.outcome), (200, BlockOutcome::None), "19");
    assert_eq!(stale.reason.as_deref(), Some("STALE_COPY"));
    let (status, fresh) = fixture.put(&for_ever("k3")).await;
    assert_eq!((status, fresh.item.unwrap().removal_no), (201, 1), "20");

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

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_atomic_and_has_one_result_per_key() {
    let fixture = Fixture::new().await;
    fixture.put(&for_ever("k1")).await;
    let worker = BlockRequest {
        kind: BlockKind::Worker,
        identifier: "alc_1".into(),
        ..for_ever("unused")
    };
    let evacuate = BlockRequest {
        action: BlockAction::Evacuate,
        ..for_ever("k2")
    };
    let items = vec![for_ever("k1"), for_ever("k2"), evacuate, worker];
    let batch = BlockBatch {
        items: items.clone(),
        source: None,
    };
    let operator = fixture.operator();
    let answer: BlockBatchAnswer = operator.post(ITEMS, &batch, None).await.unwrap();
    let outcomes: Vec<String> = answer
        .results
        .iter()
        .map(|one| format!("{:?}", one.outcome))
        .collect();
    assert_eq!(outcomes, ["None", "Added", "Added"]);
    assert_eq!(
        (
            answer.added,
            answer.upgraded,
            answer.unchanged,
            answer.stale
        ),
        (2, 0, 1, 0)
    );

    let mut bad = items;
    bad.insert(1, mark(""));
    bad.push(mark("k9"));
    let (operator, bad) = (
        fixture.operator(),
        BlockBatch {
            items: bad,
            source: None,
        },
    );
    let refused = operator
        .post::<_, BlockBatchAnswer>(ITEMS, &bad, None)
        .await;
    assert_eq!(
        refusal(refused),
        (422, vec!["/items/1/identifier".to_owned()])
    );
    assert_eq!(refusal(fixture.show("k9").await).0, 404, "not one of them");

    let page: BlockList = fixture
        .viewer()
        .get(&format!("{ITEMS}?limit=2"))
        .await
        .unwrap();
    assert_eq!(page.items.len(), 2);
    let next = format!("{ITEMS}?limit=2&cursor={}", page.next_cursor.unwrap());
    let page: BlockList = fixture.viewer().get(&next).await.unwrap();
    assert_eq!(page.items[0].key(), "worker/alc_1");
    assert_eq!(page.next_cursor, None);
    let odd = fixture
        .viewer()
        .get::<BlockList>(&format!("{ITEMS}/rack/k1"))
        .await;
    assert_eq!(refusal(odd), (400, vec!["/path/type".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_key_has_one_merged_result() {
    let fixture = Fixture::new().await;
    let evacuate = BlockRequest {
        action: BlockAction::Evacuate,
        ..for_ever("k1")
    };
    let batch = BlockBatch {
        items: vec![for_ever("k1"), for_ever("k2"), evacuate],
        source: None,
    };
    let answer: BlockBatchAnswer = fixture.operator().post(ITEMS, &batch, None).await.unwrap();
    assert_eq!((answer.added, answer.upgraded), (2, 0), "5.3");
    let [twice, _] = answer.results.as_slice() else {
        panic!("{:?}", answer.results);
    };
    let item = twice.item.as_ref().unwrap();
    assert_eq!(
        (twice.outcome, item.action),
        (BlockOutcome::Added, BlockAction::Evacuate)
    );
    let history: BlockHistory = fixture.viewer().get("/v1/blocklist/history").await.unwrap();
    let lines = history.changes.iter().map(|line| (line.event, &line.item));
    let lines: Vec<_> = lines.filter(|(_, item)| item.identifier == "k1").collect();
    assert_eq!(lines, [(BlockEvent::Added, item)]);
}
