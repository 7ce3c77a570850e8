//! Recorded rounds: read back, planned again to the byte, limited, and kept over a restart.

use hayward_rm_scheduler::replay::{Inputs, Replay};
use hayward_rm_scheduler_api::views::{RoundList, RoundView};
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_testkit::until;
use serde_json::value::RawValue;

use super::fixture::{Allocations, Fixture, stays};
use super::neighbours::{job, service};

async fn rounds(fixture: &Fixture) -> Vec<RoundView> {
    let list: RoundList = fixture
        .client("viewer")
        .get("/v1/rounds?limit=1000")
        .await
        .unwrap();
    list.rounds
}

/// It is visible shortly after its grants.
async fn newest(fixture: &Fixture) -> RoundView {
    let first = async || rounds(fixture).await.into_iter().next();
    until("a round", first).await
}

async fn inputs(fixture: &Fixture, name: &str, round: u64) -> Result<Box<RawValue>, ClientError> {
    let path = format!("/v1/rounds/{round}/inputs");
    fixture.client(name).get(&path).await
}

/// A history: growing jobs, a new one that they make space for, and a node that leaves and returns.
async fn history(fixture: &Fixture) {
    fixture.around.ask(&job("job_a", "ann"));
    fixture.until("all of it", |all| all.len() == 8).await;
    fixture.around.ask(&job("job_b", "ben"));
    let leaving = |all: &Allocations| all.values().any(|it| it.holds() && !stays(it));
    fixture.until("room is made", leaving).await;
    fixture.let_go().await;
    fixture.around.nodes.remove("n2");
    fixture.settled().await;
    fixture.around.ask(&service("svc_c.0", "ann"));
    fixture.until("room is made for it", leaving).await;
    fixture.let_go().await;
    fixture.until_one("svc_c.0", "starts", stays).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_round_that_changed_something_is_replayed_to_the_byte() {
    let mut fixture = Fixture::new(&[4, 4, 4]).await;
    fixture.around.nodes.remove("n3");
    fixture.round().await;
    history(&fixture).await;
    let recorded = rounds(&fixture).await;
    assert!(recorded.len() > 5, "{}", recorded.len());
    let mut texts = Vec::new();
    for round in &recorded {
        assert_eq!(round.without_inputs, None);
        let text = inputs(&fixture, "operator", round.round).await.unwrap();
        let replay = Replay::read(text.get()).unwrap();
        let replayed = replay.compare(replay.plan()).unwrap();
        assert!(
            replayed.equal,
            "{}: {:#?}",
            round.round, replayed.differences
        );
        let document: Inputs = serde_json::from_str(text.get()).unwrap();
        assert_eq!((document.round, document.at), (round.round, round.at));
        assert_eq!(document.plan.grants.len(), round.grants.len());
        texts.push(text.get().to_owned());
    }
    // They survive a restart, and a new chain begins.
    fixture.restart().await;
    fixture.around.node("n4", 4);
    fixture
        .until("it is used", |all| {
            all.values().any(|it| it.node.as_str() == "n4")
        })
        .await;
    for (round, text) in recorded.iter().zip(&texts) {
        let again = inputs(&fixture, "operator", round.round).await.unwrap();
        assert_eq!(again.get(), text);
    }
    let newest = rounds(&fixture).await[0].round;
    assert!(newest > recorded[0].round);
    let text = inputs(&fixture, "operator", newest).await.unwrap();
    let replay = Replay::read(text.get()).unwrap();
    assert!(replay.compare(replay.plan()).unwrap().equal);
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_are_for_operators_and_only_of_recorded_rounds() {
    let fixture = Fixture::new(&[4]).await;
    fixture.around.ask(&job("job_a", "ann"));
    fixture.until("all of it", |all| all.len() == 4).await;
    let round = newest(&fixture).await.round;
    for name in ["ann", "viewer", "job-converter"] {
        let refused = inputs(&fixture, name, round).await.unwrap_err();
        assert_eq!(refused.problem().unwrap().code, Code::Forbidden, "{name}");
    }
    let absent = inputs(&fixture, "operator", 999_999).await.unwrap_err();
    assert_eq!(absent.problem().unwrap().code, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_over_the_limit_reports_that_its_rounds_cannot_be_replayed() {
    let mut fixture = Fixture::prepared(&[4]).await;
    fixture.settings.inputs_entries = 3;
    fixture.start().await;
    fixture.around.ask(&service("svc_a.0", "ann"));
    fixture.until_one("svc_a.0", "starts", stays).await;
    fixture.around.ask(&service("svc_b.0", "ann"));
    fixture.until_one("svc_b.0", "starts", stays).await;
    // Rounds are recorded after their decisions are visible.
    let newest = until("a round over the limit", async || {
        Some(newest(&fixture).await).filter(|round| round.without_inputs.is_some())
    })
    .await;
    let why = newest.without_inputs.unwrap();
    assert!(why.contains("inputs_entries"), "{why}");
    let absent = inputs(&fixture, "operator", newest.round)
        .await
        .unwrap_err();
    assert_eq!(absent.problem().unwrap().code, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_over_the_byte_limit_are_not_stored_and_the_answer_explains_it() {
    let mut fixture = Fixture::prepared(&[4]).await;
    fixture.settings.inputs_bytes = 40;
    fixture.start().await;
    fixture.around.ask(&service("svc_a.0", "ann"));
    fixture.until_one("svc_a.0", "starts", stays).await;
    let newest = newest(&fixture).await;
    let absent = inputs(&fixture, "operator", newest.round)
        .await
        .unwrap_err();
    let problem = absent.problem().unwrap();
    assert_eq!(problem.code, Code::NotFound);
    assert!(
        problem.detail.contains("inputs_bytes"),
        "{}",
        problem.detail
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn old_chains_are_dropped_when_there_are_too_many_rounds() {
    let mut fixture = Fixture::prepared(&[64]).await;
    // One chain may have 64 rounds, so this leaves one more round.
    fixture.settings.inputs_rounds = 65;
    fixture.start().await;
    for at in 0..3 {
        fixture.around.ask(&service(&format!("svc_{at}.0"), "ann"));
        fixture
            .until_one(&format!("svc_{at}.0"), "starts", stays)
            .await;
        fixture.settled().await;
        fixture.restart().await;
    }
    let newest = rounds(&fixture).await;
    let mut recorded = Vec::new();
    for round in &newest {
        if inputs(&fixture, "operator", round.round).await.is_ok() {
            recorded.push(round.round);
        }
    }
    assert!(
        recorded.len() < newest.len(),
        "{recorded:?} of {}",
        newest.len()
    );
    assert!(recorded.contains(&newest[0].round));
}
