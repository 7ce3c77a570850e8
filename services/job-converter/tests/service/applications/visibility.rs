//! Tests of visibility: a user sees no placeholders as tasks, and no applications or tasks of other
//! users.

use hayward_job_converter_api::applications::{
    ApplicationList, ApplicationView, TaskAccepted, TransitionResult,
};
use http::Method;
use serde_json::json;

use super::{expect_problem, fixture, put_application, task_body};

#[tokio::test(flavor = "multi_thread")]
async fn placeholders_and_other_users_tasks_are_not_visible() {
    let fixture = fixture().await;
    let (ann, bob) = (fixture.user("ann"), fixture.user("bob"));
    put_application(&ann, "b-app", &json!({})).await;
    for id in ["a-app", "c-app", "d-app"] {
        put_application(&bob, id, &json!({})).await;
    }
    for reserved in ["tg-b-app-g-0000000000", "tr-b-app-0000000000"] {
        let path = format!("/v1/applications/b-app/tasks/{reserved}");
        let call = ann.call(Method::PUT, path).body(&task_body());
        assert_eq!(
            expect_problem(call.send_for_response::<TaskAccepted>().await).0,
            400
        );
    }
    let page: ApplicationList = bob.get("/v1/applications?limit=1").await.unwrap();
    let cursor = page.next_cursor.unwrap();
    let next_page = format!("/v1/applications?limit=2&cursor={cursor}");
    let next_page: ApplicationList = bob.get(&next_page).await.unwrap();
    assert_eq!((next_page.items.len(), next_page.next_cursor), (2, None));

    let group = json!({ "name": "g", "minMember": 1, "minResource": { "cpu": "1" } });
    put_application(&ann, "gang", &json!({ "taskGroups": [group] })).await;
    let held = "tg-gang-g-0000000000";
    let path = format!("/v1/applications/gang/tasks/{held}/transitions");
    let call = ann.call(Method::POST, path);
    let call = call.body(&json!({ "event": "complete" }));
    assert_eq!(
        expect_problem(call.send_for_response::<TransitionResult>().await).0,
        404
    );

    let path = "/v1/applications/b-app";
    ann.call(Method::DELETE, path)
        .send_for_response::<()>()
        .await
        .unwrap();
    let body = json!({ "applicationId": "b-app", "terminationType": "TIMEOUT" });
    let confirmations = "/v1/allocations/t/confirmations";
    let result: TransitionResult = ann.post(confirmations, &body, None).await.unwrap();
    assert!(!result.applied);
    let result_of_bob = bob
        .post::<_, TransitionResult>(confirmations, &body, None)
        .await;
    assert_eq!(expect_problem(result_of_bob).0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn users_see_their_own_applications_and_operators_see_all() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app00001", &json!({ "queueName": "root.a" })).await;
    let bob = fixture.user("bob");
    let call = bob.call(Method::PUT, "/v1/applications/app00001");
    let refused = call
        .body(&json!({}))
        .send_for_response::<ApplicationView>()
        .await;
    assert_eq!(expect_problem(refused).0, 409);
    let refused = bob
        .get::<ApplicationView>("/v1/applications/app00001")
        .await;
    assert_eq!(expect_problem(refused).0, 404);
    put_application(&bob, "bobs", &json!({})).await;
    let own: ApplicationList = bob.get("/v1/applications").await.unwrap();
    assert_eq!(own.items.len(), 1);
    let olga = fixture.client("olga", &[hayward_service::auth::Scope::Operator]);
    let page: ApplicationList = olga.get("/v1/applications?limit=1").await.unwrap();
    let cursor = page.next_cursor.unwrap();
    let path = format!("/v1/applications?limit=1&cursor={cursor}");
    let next_page: ApplicationList = olga.get(&path).await.unwrap();
    let ids = [&page.items[0].id, &next_page.items[0].id];
    assert_eq!(
        (ids, next_page.next_cursor),
        ([&"app00001".to_owned(), &"bobs".to_owned()], None)
    );
}
