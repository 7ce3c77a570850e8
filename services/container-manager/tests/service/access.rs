//! Who may do and see what.

use hayward_container_manager_api::{ContainerList, ContainerState};
use hayward_service::Code;
use hayward_service::client::{Client, ClientError};
use hayward_vocabulary::UserName;
use serde_json::{Value, json};

use super::agent::{Agent, seen};
use super::upstream::allocation;
use super::world::World;

fn code(outcome: Result<Value, ClientError>) -> Option<Code> {
    outcome
        .err()
        .map(|error| error.problem().expect("a problem document").code)
}

async fn get(client: &Client, path: &str) -> Option<Code> {
    code(client.get(path).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_sees_what_is_theirs() {
    let world = World::new().await;
    world.upstream.put(&allocation("alc_1", "n1"));
    let mut bobs = allocation("alc_2", "n2");
    bobs.user = UserName::new("bob").unwrap();
    world.upstream.put(&bobs);
    world.until("both", |all| all.len() == 2).await;

    let ids = async |who: &str, query: &str| -> Vec<String> {
        let path = format!("/v1/containers{query}");
        let list: ContainerList = world.client(who).get(&path).await.unwrap();
        list.containers
            .into_iter()
            .map(|view| view.entry.id.to_string())
            .collect()
    };
    assert_eq!(ids("ann", "").await, ["alc_1"]);
    assert_eq!(ids("viewer", "").await, ["alc_1", "alc_2"]);
    assert_eq!(ids("operator", "?node=n2&state=ordered").await, ["alc_2"]);
    assert_eq!(ids("operator", "?work=job_2").await, Vec::<String>::new());
    assert_eq!(ids("operator", "?limit=1").await, ["alc_1"]);
    let page: ContainerList = world
        .client("operator")
        .get("/v1/containers?limit=1")
        .await
        .unwrap();
    let next = format!("?limit=1&cursor={}", page.next.unwrap());
    assert_eq!(ids("operator", &next).await, ["alc_2"]);

    let (ann, agent) = (world.client("ann"), world.client("agent-n1"));
    let rm = world.client("rm-scheduler");
    let stranger = world.stranger();
    for path in [
        "/v1/containers/alc_2",
        "/v1/containers/alc_2/logs",
        "/v1/containers/alc_3",
    ] {
        assert_eq!(get(&ann, path).await, Some(Code::NotFound), "{path}");
        assert_eq!(
            get(&stranger, path).await,
            Some(Code::Unauthenticated),
            "{path}"
        );
        assert_eq!(get(&agent, path).await, Some(Code::Forbidden), "{path}");
    }
    assert_eq!(
        get(&agent, "/v1/containers/publication").await,
        Some(Code::Forbidden)
    );
    assert_eq!(
        get(&ann, "/v1/desired/n1/publication").await,
        Some(Code::Forbidden)
    );
    assert_eq!(
        get(&agent, "/v1/desired/n2/publication").await,
        Some(Code::Forbidden)
    );
    assert_eq!(get(&agent, "/v1/desired/n1/publication").await, None);
    assert_eq!(get(&rm, "/v1/desired/n1/publication").await, None);
    assert_eq!(get(&stranger, "/readyz").await, None);
    assert_eq!(
        get(&ann, "/v1/containers?limit=0").await,
        Some(Code::BadRequest)
    );
    assert_eq!(
        get(&ann, "/v1/containers?state=asleep").await,
        Some(Code::Invalid)
    );
    assert_eq!(
        get(&ann, "/v1/containers?colour=red").await,
        Some(Code::BadRequest)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_speaks_for_its_own_node() {
    let world = World::new().await;
    world.upstream.put(&allocation("alc_1", "n1"));
    world.until_state("alc_1", ContainerState::Ordered).await;
    let quiet = world.revision();
    let mut mine = Agent::of(&world, "n1");
    let mut wrong = seen("alc_1", ContainerState::Ended);
    wrong.incarnation = 2;
    mine.report(vec![wrong, seen("alc_7", ContainerState::Running)])
        .await;
    assert_eq!(world.revision(), quiet);

    let mut other = Agent::of(&world, "n2");
    let foreign = other.next(vec![seen("alc_1", ContainerState::Ended)]);
    let refused = other.send(&foreign).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::Forbidden);
    world.until_state("alc_1", ContainerState::Ordered).await;
    other.node = "n1";
    let forged = other.next(vec![]);
    let refused = other.send(&forged).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::Forbidden);
    let agent = world.client("agent-n1");
    let put = async |body: Value| -> Result<Value, ClientError> {
        agent.put("/v1/nodes/n1/report", &body).await
    };
    let malformed = put(json!({ "boot_id": 1 })).await.unwrap_err();
    assert_eq!(malformed.problem().unwrap().errors[0].pointer, "/boot_id");
    let mut nameless = mine.next(vec![]);
    nameless.agent_instance.clear();
    let refused = mine.send(&nameless).await.unwrap_err();
    assert_eq!(
        refused.problem().unwrap().errors[0].pointer,
        "/agent_instance"
    );
}
