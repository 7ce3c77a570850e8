//! Tests of the numbers of users, in launches and in the list of operators.

use hayward_job_converter_api::accounts::AccountList;
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::auth::Scope;
use hayward_testkit::until;
use hayward_vocabulary::UserName;
use hayward_vocabulary::launch::LaunchAccount;
use serde_json::{Value, json};

use crate::applications::{put_application, put_task, task_body};
use crate::fixture::{Fixture, fresh_key, refusal, submit};

fn account(user: &str, number: u32) -> LaunchAccount {
    let user = UserName::new(user).unwrap();
    LaunchAccount { user, number }
}

async fn list(fixture: &Fixture, query: &str) -> AccountList {
    let operator = fixture.client("op", &[Scope::Operator]);
    let path = format!("/v1/accounts{query}");
    operator.get(&path).await.unwrap()
}

/// (TC-22)
#[tokio::test(flavor = "multi_thread")]
async fn each_user_has_one_number_in_all_launches_also_after_a_restart() {
    let mut fixture = Fixture::with_short_lease().await;
    let body = json!({ "command": ["x"] });
    let mut submitted = Vec::new();
    for (user, path, number) in [
        ("ann", "/v1/jobs", 0),
        ("bob", "/v1/services", 1),
        ("ann", "/v1/services", 0),
        ("cy", "/v1/jobs", 2),
    ] {
        let client = fixture.user(user);
        let work = submit(&client, path, &body, &fresh_key()).await.unwrap();
        submitted.push((work.id, account(user, number)));
    }
    put_application(&fixture.user("ann"), "app", &json!({})).await;
    put_task(&fixture.user("ann"), "app", "t", &task_body()).await;
    for restarts in [false, true] {
        if restarts {
            fixture.kill_and_restart().await;
        }
        let demand = fixture.demand().await;
        for (id, expected) in &submitted {
            let is_own = |it: &&_| {
                let it: &&hayward_job_converter_api::DemandEntry = it;
                it.work == *id || it.service.as_ref() == Some(id)
            };
            let entry = demand.values().find(is_own).unwrap();
            let account = &entry.launch.as_ref().unwrap().account;
            assert_eq!(account.as_ref(), Some(expected), "{id}");
        }
        let task = fixture.task_demand("app", "t").await;
        assert_eq!(task.launch.unwrap().account, Some(account("ann", 0)));
    }
    let eve = fixture.user("eve");
    let later = submit(&eve, "/v1/jobs", &body, &fresh_key()).await.unwrap();
    let launch = fixture.demand_of(&later.id).await.launch.unwrap();
    assert_eq!(launch.account, Some(account("eve", 3)));
    let names = |list: &AccountList| {
        let all = list.accounts.iter();
        all.map(|it| (it.user.to_string(), it.number))
            .collect::<Vec<_>>()
    };
    let first = list(&fixture, "?limit=2").await;
    let expected = [("ann", 0), ("bob", 1)];
    assert_eq!(names(&first), expected.map(|(it, no)| (it.to_owned(), no)));
    let cursor = first.next_cursor.unwrap();
    let second = list(&fixture, &format!("?limit=2&cursor={cursor}")).await;
    let expected = [("cy", 2), ("eve", 3)];
    assert_eq!(names(&second), expected.map(|(it, no)| (it.to_owned(), no)));
    assert_eq!(second.next_cursor, None);
}

/// A refused submission and a dry run give no number.
#[tokio::test(flavor = "multi_thread")]
async fn only_accepted_work_gives_its_user_a_number() {
    let fixture = Fixture::new().await;
    let ann = fixture.user("ann");
    let refused = submit(&ann, "/v1/jobs", &json!({ "command": [] }), &fresh_key()).await;
    assert!(refused.is_err());
    let body = json!({ "command": ["x"] });
    let path = "/v1/jobs?dry_run=true";
    let dry_run: Result<serde_json::Value, _> = ann.post(path, &body, Some(&fresh_key())).await;
    assert!(dry_run.is_ok());
    assert!(list(&fixture, "").await.accounts.is_empty());
}

/// (TC-22)
#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_forgotten_only_without_live_work_and_the_number_is_never_given_again() {
    let mut fixture = Fixture::with_short_lease().await;
    let ann = fixture.user("ann");
    let body = json!({ "command": ["x"] });
    let job = submit(&ann, "/v1/jobs", &body, &fresh_key()).await.unwrap();
    let operator = fixture.client("op", &[Scope::Operator]);
    let path = "/v1/accounts/ann";
    let in_use = operator.delete::<Option<Value>>(path).await;
    assert_eq!(refusal(in_use).0, 409);
    let unknown = operator.delete::<Option<Value>>("/v1/accounts/bob").await;
    assert_eq!(refusal(unknown).0, 404);
    let cancel = format!("/v1/jobs/{}", job.id);
    ann.delete::<WorkView>(&cancel).await.unwrap();
    fixture.wait_for_state(&job.id, WorkState::Cancelled).await;
    let dry_run = operator.call(http::Method::DELETE, path);
    let dry_run = dry_run.query("dry_run", true);
    dry_run.send_for_response::<Option<Value>>().await.unwrap();
    assert_eq!(list(&fixture, "").await.accounts.len(), 1);
    operator.delete::<Option<Value>>(path).await.unwrap();
    assert!(list(&fixture, "").await.accounts.is_empty());
    fixture.kill_and_restart().await;
    let ann = fixture.user("ann");
    let later = submit(&ann, "/v1/jobs", &body, &fresh_key()).await.unwrap();
    let launch = fixture.demand_of(&later.id).await.launch;
    assert_eq!(launch.unwrap().account, Some(account("ann", 1)));
}

/// Work of the version before has no number.
#[tokio::test(flavor = "multi_thread")]
async fn open_work_of_a_user_without_a_number_gets_one_after_a_restart() {
    let mut fixture = Fixture::with_short_lease().await;
    let body = json!({ "command": ["x"] });
    let ann = fixture.user("ann");
    let job = submit(&ann, "/v1/jobs", &body, &fresh_key()).await.unwrap();
    let deleted = "with gone as (delete from job_converter.account returning 1) \
                   select count(*) from gone";
    assert_eq!(fixture.query_number(deleted).await, 1);
    fixture.kill_and_restart().await;
    let bob = fixture.user("bob");
    submit(&bob, "/v1/jobs", &body, &fresh_key()).await.unwrap();
    until("ann to have a number", async || {
        let demand = fixture.demand_of(&job.id).await;
        let number = demand.launch.unwrap().account.unwrap().number;
        (list(&fixture, "").await.accounts.len() == 2).then_some(number)
    })
    .await;
}
