//! Tests of the numbers of users, in launches and in the list of operators.

use hayward_job_converter_api::accounts::AccountList;
use hayward_service::auth::Scope;
use hayward_vocabulary::UserName;
use hayward_vocabulary::launch::LaunchAccount;
use serde_json::json;

use crate::applications::{put_application, put_task, task_body};
use crate::fixture::{Fixture, fresh_key, submit};

fn account(user: &str, number: u32) -> Option<LaunchAccount> {
    let user = UserName::new(user).unwrap();
    Some(LaunchAccount { user, number })
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
            assert_eq!(entry.launch.as_ref().unwrap().account, *expected, "{id}");
        }
        let task = fixture.task_demand("app", "t").await;
        assert_eq!(task.launch.unwrap().account, account("ann", 0));
    }
    let eve = fixture.user("eve");
    let later = submit(&eve, "/v1/jobs", &body, &fresh_key()).await.unwrap();
    let launch = fixture.demand_of(&later.id).await.launch.unwrap();
    assert_eq!(launch.account, account("eve", 3));
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
