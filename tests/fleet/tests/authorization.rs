//! Authorization of every route: the test calls each route of each service as each kind of
//! principal. Further tests request the work of a user as other users.
//!
//! The routes and their scopes come from the API descriptions that the services publish. A route
//! without scopes fails here (S6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hayward_container_manager_api::ContainerList;
use hayward_job_converter_api::WorkList;
use hayward_rm_scheduler_api::shares::Shares;
use hayward_rm_scheduler_api::views::AllocationList;
use hayward_service::http::authorization::SCOPES;
use hayward_service::{Client, ClientError, Issuer, Scope, SystemClock, TokenSource};
use hayward_tests_fleet::{
    TestFleet, is_running, job, reservation, service, submit, wait_for_view,
};
use http::Method;
use serde_json::{Value, json};

/// Maximum time of each wait.
const LIMIT: Duration = Duration::from_mins(1);

/// A caller.
struct Principal {
    name: &'static str,
    /// Scopes of the token. `None` if the caller has no token.
    scopes: Option<&'static [&'static str]>,
}

const fn principal(name: &'static str, scopes: &'static [&'static str]) -> Principal {
    let scopes = Some(scopes);
    Principal { name, scopes }
}

/// Name of the principal in a tenant. Membership in a tenant opens and closes no route.
const TENANT_MEMBER: &str = "cy";

/// One principal of each kind, and another one for each route whose path must name the caller.
const PRINCIPALS: [Principal; 17] = [
    Principal {
        name: "a stranger",
        scopes: None,
    },
    principal("without scopes", &[]),
    principal("ada", &["submitter"]),
    principal("ben", &["submitter"]),
    principal(TENANT_MEMBER, &["submitter"]),
    principal("an operator", &["operator"]),
    principal("a viewer", &["viewer"]),
    principal("an auditor", &["auditor"]),
    principal("a scraper", &["scraper"]),
    principal("the agent", &["agent:n1"]),
    principal("the agent of another node", &["agent:n2"]),
    principal("a service", &["service:rm-scheduler"]),
    principal("a runner", &["runner:job_1"]),
    principal("the owner", &["owner:p1"]),
    principal("the owner of another pool", &["owner:p2"]),
    principal("the orchestrator", &["orchestrator:o1"]),
    principal("another orchestrator", &["orchestrator:o2"]),
];

/// Fills the parameters of a path with the names in the tokens above.
fn fill_path(path: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        "{node}" => "n1",
        "{pool}" => "p1",
        "{name}" => "o1",
        "{type}" => "node",
        other if other.starts_with('{') => "1",
        other => other,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Returns whether the scopes in the description admit these scopes. It is written separately from
/// the guard that the test checks.
fn is_admitted(allowed_scopes: &BTreeSet<String>, scopes: Option<&[&str]>) -> bool {
    if allowed_scopes.contains("anyone") {
        return true;
    }
    let Some(scopes) = scopes else {
        return false;
    };
    let fill_scope = |scope: &str| {
        scope
            .replace("{node}", "n1")
            .replace("{pool}", "p1")
            .replace("{name}", "o1")
    };
    allowed_scopes.contains("known")
        || allowed_scopes.iter().any(|allowed| {
            scopes.iter().any(|scope| {
                let kind = scope.split(':').next().unwrap_or_default();
                *scope == fill_scope(allowed) || (allowed == kind)
            })
        })
}

struct Route {
    service: &'static str,
    method: Method,
    path: String,
    allowed_scopes: BTreeSet<String>,
}

/// Returns all routes, and a text for each route without scopes.
async fn read_routes(fleet: &TestFleet) -> (Vec<Route>, Vec<String>) {
    let (mut routes, mut without_scopes) = (Vec::new(), Vec::new());
    for (service, _) in hayward::prepare::SERVICES {
        let client = fleet.client(service, "operator");
        let document: Value = client.get("/v1/openapi.json").await.expect("a description");
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("operations") {
                let Ok(method) = method.to_ascii_uppercase().parse::<Method>() else {
                    continue;
                };
                let allowed_scopes: BTreeSet<String> =
                    serde_json::from_value(operation[SCOPES].clone()).unwrap_or_default();
                if allowed_scopes.is_empty() {
                    without_scopes.push(format!("{service}: {method} {path}"));
                }
                let path = path.clone();
                routes.push(Route {
                    service,
                    method,
                    path,
                    allowed_scopes,
                });
            }
        }
    }
    (routes, without_scopes)
}

async fn status_code(client: &Client, method: Method, path: &str) -> u16 {
    let call = client.call(method.clone(), path);
    let call = match method {
        Method::PUT | Method::POST => call.body(&json!({})).idempotency_key("once"),
        _ => call,
    };
    match call.send::<Option<Value>>().await {
        // An answer that is not JSON is an answer too.
        Ok(_) | Err(ClientError::Unreadable { .. }) => 200,
        Err(ClientError::Problem(problem)) => problem.status().as_u16(),
        Err(other) => panic!("{path}: {other:?}"),
    }
}

fn create_clients(
    fleet: &TestFleet,
    issuer: &Issuer,
) -> BTreeMap<(&'static str, &'static str), Client> {
    let mut clients = BTreeMap::new();
    for principal in &PRINCIPALS {
        let token = principal.scopes.map_or_else(TokenSource::none, |scopes| {
            let scopes = scopes.iter().map(|it| it.parse().expect("a scope"));
            let scopes: Vec<Scope> = scopes.collect();
            let token = issuer.mint(principal.name, &scopes, 3_600_000);
            TokenSource::fixed(token.expect("a token"))
        });
        for (service, _) in hayward::prepare::SERVICES {
            let client = Client::new([fleet.url(service)], token.clone()).expect("a client");
            clients.insert((principal.name, service), client);
        }
    }
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_admits_exactly_the_principals_of_its_description() {
    let fleet = TestFleet::start().await;
    let issuer = fleet.keys.issuer(Arc::new(SystemClock)).expect("the key");
    let globex = "globex".parse().expect("a name");
    let keys = &fleet.keys;
    keys.set_tenant(TENANT_MEMBER, Some(&globex))
        .expect("a tenant");
    let clients = create_clients(&fleet, &issuer);
    let (routes, without_scopes) = read_routes(&fleet).await;
    assert_eq!(without_scopes, [""; 0], "these routes name no scopes");
    assert!(routes.len() > 130, "{}", routes.len());
    let mut mismatches = Vec::new();
    for route in &routes {
        let path = fill_path(&route.path);
        for principal in &PRINCIPALS {
            let client = &clients[&(principal.name, route.service)];
            let status = status_code(client, route.method.clone(), &path).await;
            let is_expected = match is_admitted(&route.allowed_scopes, principal.scopes) {
                true => !matches!(status, 401 | 403) || has_proof_in_body(route, status),
                false if principal.scopes.is_none() => status == 401,
                false => status == 403,
            };
            if !is_expected {
                let (method, name) = (&route.method, principal.name);
                mismatches.push(format!("{method} {path} as {name}: {status}"));
            }
        }
    }
    assert_eq!(mismatches, [""; 0], "of {} routes", routes.len());
}

/// Returns whether the refusal is right because the body must carry the proof, which the body of
/// this test does not.
fn has_proof_in_body(route: &Route, status: u16) -> bool {
    status == 401 && route.method == Method::POST && route.path.ends_with("/credentials")
}

/// All reads of another user's work answer as if it did not exist.
#[tokio::test(flavor = "multi_thread")]
async fn work_of_another_user_does_not_exist_for_a_caller() {
    let fleet = TestFleet::start_with_agents(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    let ben = fleet.client("job-converter", "user-ben");
    let service_id = submit(&ada, "services", &service(&["sleep", "1000"], 1)).await;
    let path = format!("/v1/services/{service_id}");
    wait_for_view(&ada, &path, LIMIT, is_running).await;
    let id = submit(&ada, "jobs", &job(&["/bin/true"], 1)).await;
    let reservation_id = submit(&ada, "reservations", &reservation()).await;
    let mut work_ids = BTreeMap::from([
        ("jobs", id.to_string()),
        ("services", service_id.to_string()),
        ("reservations", reservation_id.to_string()),
    ]);
    for (kind, id) in &work_ids {
        let list: WorkList = ben.get(&format!("/v1/{kind}")).await.expect("a list");
        assert!(list.items.is_empty(), "{kind}: {list:?}");
        for part in ["", "/explain", "/timeline"] {
            let path = format!("/v1/{kind}/{id}{part}");
            assert_eq!(status_code(&ben, Method::GET, &path).await, 404, "{path}");
            assert_eq!(status_code(&ada, Method::GET, &path).await, 200, "{path}");
        }
        let path = format!("/v1/{kind}/{id}");
        assert_eq!(
            status_code(&ben, Method::DELETE, &path).await,
            404,
            "{path}"
        );
    }
    for part in ["tasks", "logs"] {
        let path = format!("/v1/jobs/{id}/{part}");
        assert_eq!(status_code(&ben, Method::GET, &path).await, 404, "{path}");
    }
    // A request for another user's list is refused: the name of a user is no secret.
    for path in ["/v1/jobs?user=ada", "/v1/jobs/publication?user=ada"] {
        assert_eq!(status_code(&ben, Method::GET, path).await, 403, "{path}");
    }
    let path = format!(
        "/v1/services/{}/submission",
        work_ids.remove("services").expect("one")
    );
    assert_eq!(status_code(&ben, Method::GET, &path).await, 404, "{path}");
    check_containers_of_another_user(&fleet).await;
    check_allocations_of_another_user(&fleet).await;
}

fn set_tenants(fleet: &TestFleet) {
    for (user, tenant) in [("ada", "acme"), ("ann", "acme"), ("ben", "globex")] {
        let tenant = tenant.parse().expect("a name");
        fleet
            .keys
            .set_tenant(user, Some(&tenant))
            .expect("a tenant");
    }
}

/// No answer to a user of another tenant names the user or the work (S12).
#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_another_tenant_sees_amounts_and_no_names() {
    let fleet = TestFleet::start_with_agents(1).await;
    set_tenants(&fleet);
    let ada = fleet.client("job-converter", "user-ada");
    let service_id = submit(&ada, "services", &service(&["sleep", "1000"], 1)).await;
    let path = format!("/v1/services/{service_id}");
    wait_for_view(&ada, &path, LIMIT, is_running).await;
    let issuer = fleet.keys.issuer(Arc::new(SystemClock)).expect("the key");
    let client = |user: &str, service: &str| {
        let token = issuer.mint(user, &[Scope::Submitter], 3_600_000);
        let token = TokenSource::fixed(token.expect("a token"));
        Client::new([fleet.url(service)], token).expect("a client")
    };
    // If a member of the same tenant sees the user, the service has read the file of tenants.
    let ann = client("ann", "rm-scheduler");
    let count_ada = |shares: &Shares| {
        let users = shares.classes.iter().flat_map(|class| &class.users);
        users.filter(|it| it.user.as_str() == "ada").count()
    };
    hayward_testkit::until("ann to see ada", async || {
        let shares: Shares = ann.get("/v1/shares").await.ok()?;
        (count_ada(&shares) > 0).then_some(())
    })
    .await;
    let (routes, _) = read_routes(&fleet).await;
    let is_plain_read = |it: &&Route| {
        let is_plain = it.method == Method::GET && !it.path.contains('{');
        is_plain && it.allowed_scopes.contains("submitter")
    };
    let (mut revealed, mut count) = (Vec::new(), 0);
    for route in routes.iter().filter(is_plain_read) {
        let ben = client("ben", route.service);
        let text = match ben.get::<Value>(&route.path).await {
            Ok(answer) => answer.to_string(),
            // The route needs more than a path, so its refusal reveals nothing.
            Err(ClientError::Problem(problem)) if problem.status() == 400 => continue,
            Err(other) => panic!("{}: {other:?}", route.path),
        };
        if text.contains("\"ada\"") || text.contains(service_id.as_str()) {
            revealed.push(format!("{}: {text}", route.path));
        }
        count += 1;
    }
    assert_eq!(revealed, [""; 0], "of {count} routes");
    assert!(count > 10, "{count}");
    let ben = client("ben", "rm-scheduler");
    let shares_for_ben: Shares = ben.get("/v1/shares").await.expect("amounts");
    let others = shares_for_ben
        .classes
        .iter()
        .find_map(|class| class.others.as_ref());
    assert!(
        others.is_some_and(|it| it.users == 1 && it.tally.held > 0),
        "{shares_for_ben:?}"
    );
    let operator = fleet.client("rm-scheduler", "operator");
    let all_shares: Shares = operator.get("/v1/shares").await.expect("all");
    assert_eq!((count_ada(&shares_for_ben), count_ada(&all_shares)), (0, 1));
}

async fn check_containers_of_another_user(fleet: &TestFleet) {
    let client = |user: &str| fleet.client("container-manager", user);
    let (ada, ben) = (client("user-ada"), client("user-ben"));
    let ada_list: ContainerList = ada.get("/v1/containers").await.expect("a list");
    let ben_list: ContainerList = ben.get("/v1/containers").await.expect("a list");
    assert!(
        !ada_list.containers.is_empty() && ben_list.containers.is_empty(),
        "{ben_list:?}"
    );
    for container in &ada_list.containers {
        let id = &container.entry.id;
        for path in [
            format!("/v1/containers/{id}"),
            format!("/v1/containers/{id}/logs"),
        ] {
            assert_eq!(status_code(&ben, Method::GET, &path).await, 404, "{path}");
        }
    }
}

async fn check_allocations_of_another_user(fleet: &TestFleet) {
    let client = |user: &str| fleet.client("rm-scheduler", user);
    let (ada, ben) = (client("user-ada"), client("user-ben"));
    let ada_list: AllocationList = ada.get("/v1/allocations").await.expect("a list");
    let complete_list: AllocationList = client("operator")
        .get("/v1/allocations")
        .await
        .expect("all");
    let ben_list: AllocationList = ben.get("/v1/allocations").await.expect("a list");
    assert!(!ada_list.allocations.is_empty() && ben_list.allocations.is_empty());
    // Some of the user's allocations may have ended meanwhile.
    let ids: BTreeSet<_> = complete_list.allocations.iter().map(|it| &it.id).collect();
    assert!(ada_list.allocations.iter().any(|it| ids.contains(&it.id)));
    let path = format!("/v1/allocations/{}", ada_list.allocations[0].id);
    assert_eq!(status_code(&ben, Method::GET, &path).await, 404);
    assert_eq!(status_code(&ada, Method::GET, &path).await, 200);
}
