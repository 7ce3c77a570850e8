//! Permissions: which containers each caller may see and change.
//!
//! `alc_1` on `n1` belongs to the user ann, `alc_2` on `n2` to the user bob.

use hayward_container_manager_api::{ContainerList, ContainerState};
use hayward_service::Code;
use hayward_service::client::{Client, ClientError};
use hayward_vocabulary::UserName;
use serde_json::{Value, json};

use super::fake_agent::{FakeAgent, container_report};
use super::fake_scheduler::allocation;
use super::fixture::Fixture;

fn error_code(outcome: Result<Value, ClientError>) -> Option<Code> {
    outcome
        .err()
        .map(|error| error.problem().expect("a problem document").code)
}

async fn get_code(client: &Client, path: &str) -> Option<Code> {
    error_code(client.get(path).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn users_see_their_own_containers() {
    let fixture = Fixture::new().await;
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    let mut allocation_of_bob = allocation("alc_2", "n2");
    allocation_of_bob.user = UserName::new("bob").unwrap();
    fixture.scheduler.publish(&allocation_of_bob);
    fixture
        .wait_until("both containers are published", |all| all.len() == 2)
        .await;

    let list_ids = async |user: &str, query: &str| -> Vec<String> {
        let path = format!("/v1/containers{query}");
        let list: ContainerList = fixture.client(user).get(&path).await.unwrap();
        list.containers
            .into_iter()
            .map(|view| view.entry.id.to_string())
            .collect()
    };
    assert_eq!(list_ids("ann", "").await, ["alc_1"]);
    assert_eq!(list_ids("viewer", "").await, ["alc_1", "alc_2"]);
    assert_eq!(
        list_ids("operator", "?node=n2&state=ordered").await,
        ["alc_2"]
    );
    assert_eq!(
        list_ids("operator", "?work=job_2").await,
        Vec::<String>::new()
    );
    assert_eq!(list_ids("operator", "?limit=1").await, ["alc_1"]);
    let page: ContainerList = fixture
        .client("operator")
        .get("/v1/containers?limit=1")
        .await
        .unwrap();
    let next = format!("?limit=1&cursor={}", page.next.unwrap());
    assert_eq!(list_ids("operator", &next).await, ["alc_2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_principal_reads_only_what_its_role_allows() {
    let fixture = Fixture::new().await;
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    let mut allocation_of_bob = allocation("alc_2", "n2");
    allocation_of_bob.user = UserName::new("bob").unwrap();
    fixture.scheduler.publish(&allocation_of_bob);
    fixture
        .wait_until("both containers are published", |all| all.len() == 2)
        .await;

    let (ann, agent) = (fixture.client("ann"), fixture.client("agent-n1"));
    let rm_scheduler = fixture.client("rm-scheduler");
    let anonymous = fixture.anonymous_client();
    for path in [
        "/v1/containers/alc_2",
        "/v1/containers/alc_2/logs",
        "/v1/containers/alc_3",
    ] {
        assert_eq!(get_code(&ann, path).await, Some(Code::NotFound), "{path}");
        assert_eq!(
            get_code(&anonymous, path).await,
            Some(Code::Unauthenticated),
            "{path}"
        );
        assert_eq!(
            get_code(&agent, path).await,
            Some(Code::Forbidden),
            "{path}"
        );
    }
    for (client, path, code) in [
        (&agent, "/v1/containers/publication", Some(Code::Forbidden)),
        (&ann, "/v1/desired/n1/publication", Some(Code::Forbidden)),
        (&agent, "/v1/desired/n2/publication", Some(Code::Forbidden)),
        (&agent, "/v1/desired/n1/publication", None),
        (&rm_scheduler, "/v1/desired/n1/publication", None),
        (&anonymous, "/readyz", None),
        (&ann, "/v1/containers?limit=0", Some(Code::BadRequest)),
        (&ann, "/v1/containers?state=asleep", Some(Code::Invalid)),
        (&ann, "/v1/containers?colour=red", Some(Code::BadRequest)),
    ] {
        assert_eq!(get_code(client, path).await, code, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reports_only_its_own_node() {
    let fixture = Fixture::new().await;
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    fixture
        .wait_for_state("alc_1", ContainerState::Ordered)
        .await;
    let revision = fixture.revision();
    let mut agent_n1 = FakeAgent::new(&fixture, "n1");
    let mut other_incarnation = container_report("alc_1", ContainerState::Ended);
    other_incarnation.incarnation = 2;
    agent_n1
        .report(vec![
            other_incarnation,
            container_report("alc_7", ContainerState::Running),
        ])
        .await;
    assert_eq!(fixture.revision(), revision);

    let mut agent_n2 = FakeAgent::new(&fixture, "n2");
    let foreign = agent_n2.next_report(vec![container_report("alc_1", ContainerState::Ended)]);
    let refused = agent_n2.send(&foreign).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::Forbidden);
    fixture
        .wait_for_state("alc_1", ContainerState::Ordered)
        .await;
    agent_n2.node = "n1";
    let forged = agent_n2.next_report(vec![]);
    let refused = agent_n2.send(&forged).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::Forbidden);
    let agent = fixture.client("agent-n1");
    let put_report = async |body: Value| -> Result<Value, ClientError> {
        agent.put("/v1/nodes/n1/report", &body).await
    };
    let malformed = put_report(json!({ "boot_id": 1 })).await.unwrap_err();
    assert_eq!(malformed.problem().unwrap().errors[0].pointer, "/boot_id");
    let mut nameless = agent_n1.next_report(vec![]);
    nameless.agent_instance.clear();
    let refused = agent_n1.send(&nameless).await.unwrap_err();
    assert_eq!(
        refused.problem().unwrap().errors[0].pointer,
        "/agent_instance"
    );
}
