//! Tests of a scheduler whose database went back in time, for example after the restore of a
//! backup. The scheduler decides nothing and serves the last known state (R9).

use std::collections::BTreeSet;

use hayward_service::Code;
use http::Method;
use serde_json::Value;

use super::fixture::Fixture;

/// Routes that fail in this state, because they report only the present state.
const REFUSED: [&str; 1] = ["/v1/invariants"];

/// Reads go on while nothing can be committed (R9).
#[tokio::test(flavor = "multi_thread")]
async fn reads_go_on_without_a_leader_and_are_marked_as_stale() {
    let fixture = Fixture::new(&[4]).await;
    fixture.settle().await;
    let operator = fixture.client("operator");
    let description: Value = operator.get("/v1/openapi.json").await.unwrap();
    let paths = description["paths"].as_object().unwrap().iter();
    let paths = paths.filter(|(path, it)| it["get"].is_object() && !path.contains('{'));
    let paths: Vec<&str> = paths.map(|(path, _)| path.as_str()).collect();
    assert!(paths.contains(&"/v1/occupancy") && paths.contains(&"/v1/load"));

    fixture.report_went_back();
    let mut refused = BTreeSet::new();
    for path in paths {
        let answer = operator
            .call(Method::GET, path)
            .send_for_response::<Value>()
            .await;
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
    // Publications fail, so that followers know that nothing is decided.
    let service = fixture.client("job-converter");
    for path in ["/v1/allocations/publication", "/v1/verdicts/publication"] {
        let error = service.get::<Value>(path).await.unwrap_err();
        assert_eq!(error.problem().unwrap().code, Code::WentBack, "{path}");
    }
}
