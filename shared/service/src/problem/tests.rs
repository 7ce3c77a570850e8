//! Tests of problem documents and their codes.

use super::*;

#[test]
fn every_code_has_its_wire_name_and_an_error_status() {
    for code in Code::ALL {
        assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        assert!(code.status().is_client_error() || code.status().is_server_error());
    }
    let newer: Code = serde_json::from_str("\"from_tomorrow\"").unwrap();
    assert_eq!(newer, Code::Unknown);
}

#[test]
fn the_cause_is_never_sent() {
    let problem = Problem::internal(anyhow::anyhow!("password of db.internal is wrong"));
    let text = serde_json::to_string(&problem).unwrap();
    assert!(!text.contains("db.internal"), "{text}");
    assert!(problem.cause().is_some());
}

#[test]
fn a_problem_survives_the_wire_format() {
    let problem = Problem::standby().at("/a/0", "odd");
    let text = serde_json::to_string(&problem).unwrap();
    let read: Problem = serde_json::from_str(&text).unwrap();
    assert_eq!(read.code, Code::Standby);
    assert_eq!(read.errors, problem.errors);
    assert_eq!(read.retry_after_ms, Some(1000));
}

#[test]
fn problem_responses_have_headers_for_retry_and_authentication() {
    let too_many = Problem::new(Code::TooManyRequests, "slow down").retry_after_ms(1500);
    let response = too_many.into_response();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "2");
    assert_eq!(response.headers()["content-type"], CONTENT_TYPE);
    let unauthenticated = Problem::new(Code::Unauthenticated, "who are you").into_response();
    assert_eq!(unauthenticated.headers()["www-authenticate"], "Bearer");
    // On the same connection, the next request would reach the same replica.
    let standby = Problem::standby().into_response();
    assert_eq!(standby.headers()["connection"], "close");
}

#[test]
fn all_faults_of_a_request_are_reported_with_pointers() {
    let problem = Problem::new(Code::Invalid, "some fields do not mean anything we can do")
        .at(pointer_of("count"), "must be at least 1")
        .at(pointer_of("items[0].name"), "must not be empty");
    let pointers: Vec<_> = problem.errors.iter().map(|e| e.pointer.as_str()).collect();
    assert_eq!(pointers, ["/count", "/items/0/name"]);
    assert_eq!(problem.status(), 422);
}

#[test]
fn a_problem_in_an_anyhow_error_is_recovered() {
    let problem = Problem::from(anyhow::Error::new(Problem::not_found("job_1")));
    assert_eq!(problem.code, Code::NotFound);
}

#[test]
fn a_problem_is_small_enough_to_return() {
    assert!(size_of::<Problem>() <= 128, "{}", size_of::<Problem>());
}
