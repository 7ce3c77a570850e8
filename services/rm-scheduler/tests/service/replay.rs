//! Tests of recorded rounds. The inputs of a round can be read and planned again, with the same
//! plan. Recorded rounds survive a restart, and their number and size are limited. They are stored
//! in chains: the first round of a chain has the whole snapshot, and each further one its changes.

use hayward_rm_scheduler::replay::{Inputs, Replay};
use hayward_rm_scheduler_api::views::{RoundList, RoundView};
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_testkit::until;
use serde_json::value::RawValue;

use super::fixture::{Allocations, Fixture, is_staying};
use super::neighbours::{job, service};

async fn list_rounds(fixture: &Fixture) -> Vec<RoundView> {
    let list: RoundList = fixture
        .client("viewer")
        .get("/v1/rounds?limit=1000")
        .await
        .unwrap();
    list.rounds
}

/// Waits for the newest recorded round. A round is visible shortly after its grants.
async fn until_newest_round(fixture: &Fixture) -> RoundView {
    let first = async || list_rounds(fixture).await.into_iter().next();
    until("a round", first).await
}

async fn read_inputs(
    fixture: &Fixture,
    name: &str,
    round: u64,
) -> Result<Box<RawValue>, ClientError> {
    let path = format!("/v1/rounds/{round}/inputs");
    fixture.client(name).get(&path).await
}

/// Causes several rounds: a job grows, loses processes to a second job and to a service, and a node
/// is removed.
async fn run_history(fixture: &Fixture) {
    fixture.neighbours.submit(&job("job_a", "ann"));
    fixture.until("eight processes", |all| all.len() == 8).await;
    fixture.neighbours.submit(&job("job_b", "ben"));
    let has_leaving = |all: &Allocations| all.values().any(|it| it.holds() && !is_staying(it));
    fixture.until("a leaving process", has_leaving).await;
    fixture.confirm_all_ends().await;
    fixture.neighbours.nodes.remove("n2");
    fixture.settle().await;
    fixture.neighbours.submit(&service("svc_c.0", "ann"));
    fixture.until("a leaving process", has_leaving).await;
    fixture.confirm_all_ends().await;
    fixture.until_one("svc_c.0", "starts", is_staying).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_round_that_changed_something_is_replayed_to_the_byte() {
    let mut fixture = Fixture::new(&[4, 4, 4]).await;
    fixture.neighbours.nodes.remove("n3");
    fixture.force_round().await;
    run_history(&fixture).await;
    let recorded = list_rounds(&fixture).await;
    assert!(recorded.len() > 5, "{}", recorded.len());
    let mut texts = Vec::new();
    for round in &recorded {
        assert_eq!(round.without_inputs, None);
        let text = read_inputs(&fixture, "operator", round.round)
            .await
            .unwrap();
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
    // The recorded rounds survive a restart. Then a new chain begins.
    fixture.restart().await;
    fixture.neighbours.node("n4", 4);
    fixture
        .until("an allocation on n4", |all| {
            all.values().any(|it| it.node.as_str() == "n4")
        })
        .await;
    for (round, text) in recorded.iter().zip(&texts) {
        let reread = read_inputs(&fixture, "operator", round.round)
            .await
            .unwrap();
        assert_eq!(reread.get(), text);
    }
    let newest = list_rounds(&fixture).await[0].round;
    assert!(newest > recorded[0].round);
    let text = read_inputs(&fixture, "operator", newest).await.unwrap();
    let replay = Replay::read(text.get()).unwrap();
    assert!(replay.compare(replay.plan()).unwrap().equal);
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_are_for_operators_and_only_of_recorded_rounds() {
    let fixture = Fixture::new(&[4]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    fixture.until("four processes", |all| all.len() == 4).await;
    let round = until_newest_round(&fixture).await.round;
    for name in ["ann", "viewer", "job-converter"] {
        let refused = read_inputs(&fixture, name, round).await.unwrap_err();
        assert_eq!(refused.problem().unwrap().code, Code::Forbidden, "{name}");
    }
    let absent = read_inputs(&fixture, "operator", 999_999)
        .await
        .unwrap_err();
    assert_eq!(absent.problem().unwrap().code, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_over_the_limit_reports_that_its_rounds_cannot_be_replayed() {
    let mut fixture = Fixture::not_started(&[4]).await;
    fixture.settings.inputs_entries = 3;
    fixture.start().await;
    fixture.neighbours.submit(&service("svc_a.0", "ann"));
    fixture.until_one("svc_a.0", "starts", is_staying).await;
    fixture.neighbours.submit(&service("svc_b.0", "ann"));
    fixture.until_one("svc_b.0", "starts", is_staying).await;
    // Rounds are recorded after their decisions are visible.
    let newest = until("a round over the limit", async || {
        Some(until_newest_round(&fixture).await).filter(|round| round.without_inputs.is_some())
    })
    .await;
    let why = newest.without_inputs.unwrap();
    assert!(why.contains("inputs_entries"), "{why}");
    let absent = read_inputs(&fixture, "operator", newest.round)
        .await
        .unwrap_err();
    assert_eq!(absent.problem().unwrap().code, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_over_the_byte_limit_are_not_stored_and_the_answer_explains_it() {
    let mut fixture = Fixture::not_started(&[4]).await;
    fixture.settings.inputs_bytes = 40;
    fixture.start().await;
    fixture.neighbours.submit(&service("svc_a.0", "ann"));
    fixture.until_one("svc_a.0", "starts", is_staying).await;
    let newest = until_newest_round(&fixture).await;
    let absent = read_inputs(&fixture, "operator", newest.round)
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
    let mut fixture = Fixture::not_started(&[64]).await;
    // One chain may have 64 rounds, so this leaves one more round.
    fixture.settings.inputs_rounds = 65;
    fixture.start().await;
    for index in 0..3 {
        fixture
            .neighbours
            .submit(&service(&format!("svc_{index}.0"), "ann"));
        fixture
            .until_one(&format!("svc_{index}.0"), "starts", is_staying)
            .await;
        fixture.settle().await;
        fixture.restart().await;
    }
    let newest = list_rounds(&fixture).await;
    let mut recorded = Vec::new();
    for round in &newest {
        if read_inputs(&fixture, "operator", round.round).await.is_ok() {
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
