//! R9: a scheduler whose database went back in time decides nothing, and says what it knew.

use std::collections::BTreeSet;

use hayward_service::Code;
use http::Method;
use serde_json::Value;

use super::world::World;

/// It looks at how things are now, and now they are that the database went back in time.
const REFUSED: [&str; 1] = ["/v1/invariants"];

#[tokio::test(flavor = "multi_thread")]
async fn r9_whatever_can_be_read_is_read_on_and_says_that_it_is_old() {
    let world = World::new(&[4]).await;
    world.settled().await;
    let operator = world.client("operator");
    let description: Value = operator.get("/v1/openapi.json").await.unwrap();
    let paths = description["paths"].as_object().unwrap().iter();
    let paths = paths.filter(|(path, it)| it["get"].is_object() && !path.contains('{'));
    let paths: Vec<&str> = paths.map(|(path, _)| path.as_str()).collect();
    assert!(paths.contains(&"/v1/occupancy") && paths.contains(&"/v1/load"));

    world.goes_back();
    let mut refused = BTreeSet::new();
    for path in paths {
        let answer = operator.call(Method::GET, path).answer::<Value>().await;
        match answer {
            Ok(answer) => assert_eq!(answer.headers["hayward-stale"], "went_back", "{path}"),
            Err(error) => {
                let code = error.problem().map(|problem| problem.code);
                if code == Some(Code::WentBack) {
                    refused.insert(path);
                }
            }
        }
    }
    assert_eq!(refused, BTreeSet::from(REFUSED));
    // Who follows hears that nothing goes on.
    let service = world.client("job-converter");
    for path in ["/v1/allocations/publication", "/v1/verdicts/publication"] {
        let told = service.get::<Value>(path).await.unwrap_err();
        assert_eq!(told.problem().unwrap().code, Code::WentBack, "{path}");
    }
}
