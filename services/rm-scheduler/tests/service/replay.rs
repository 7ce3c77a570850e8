//! Kept rounds: read back, planned again to the byte, limited, and there after a restart.

use hayward_rm_scheduler::replay::{Inputs, Replay};
use hayward_rm_scheduler_api::views::{RoundList, RoundView};
use hayward_service::Code;
use hayward_service::client::ClientError;
use hayward_testkit::until;
use serde_json::value::RawValue;

use super::neighbours::{job, service};
use super::world::{Allocations, World, stays};

async fn rounds(world: &World) -> Vec<RoundView> {
    let list: RoundList = world
        .client("viewer")
        .get("/v1/rounds?limit=1000")
        .await
        .unwrap();
    list.rounds
}

/// It is shown a moment after what it granted is told.
async fn newest(world: &World) -> RoundView {
    let first = async || rounds(world).await.into_iter().next();
    until("a round", first).await
}

async fn inputs(world: &World, who: &str, round: u64) -> Result<Box<RawValue>, ClientError> {
    let path = format!("/v1/rounds/{round}/inputs");
    world.client(who).get(&path).await
}

/// Some history: jobs that grow, a newcomer they make room for, a node that goes and returns.
async fn history(world: &World) {
    world.around.ask(&job("job_a", "ann"));
    world.until("all of it", |all| all.len() == 8).await;
    world.around.ask(&job("job_b", "ben"));
    let leaving = |all: &Allocations| all.values().any(|it| it.holds() && !stays(it));
    world.until("room is made", leaving).await;
    world.let_go().await;
    world.around.nodes.remove("n2");
    world.settled().await;
    world.around.ask(&service("svc_c.0", "ann"));
    world.until("room is made for it", leaving).await;
    world.let_go().await;
    world.until_one("svc_c.0", "starts", stays).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_round_that_changed_something_is_replayed_to_the_byte() {
    let mut world = World::new(&[4, 4, 4]).await;
    world.around.nodes.remove("n3");
    world.round().await;
    history(&world).await;
    let kept = rounds(&world).await;
    assert!(kept.len() > 5, "{}", kept.len());
    let mut texts = Vec::new();
    for round in &kept {
        assert_eq!(round.without_inputs, None);
        let text = inputs(&world, "operator", round.round).await.unwrap();
        let replay = Replay::read(text.get()).unwrap();
        let replayed = replay.compare(replay.plan()).unwrap();
        assert!(
            replayed.equal,
            "{}: {:#?}",
            round.round, replayed.differences
        );
        let said: Inputs = serde_json::from_str(text.get()).unwrap();
        assert_eq!((said.round, said.at), (round.round, round.at));
        assert_eq!(said.plan.grants.len(), round.grants.len());
        texts.push(text.get().to_owned());
    }
    // They outlive the scheduler, and what comes after stands on its own.
    world.restart().await;
    world.around.node("n4", 4);
    world
        .until("it is used", |all| {
            all.values().any(|it| it.node.as_str() == "n4")
        })
        .await;
    for (round, text) in kept.iter().zip(&texts) {
        let again = inputs(&world, "operator", round.round).await.unwrap();
        assert_eq!(again.get(), text);
    }
    let newest = rounds(&world).await[0].round;
    assert!(newest > kept[0].round);
    let text = inputs(&world, "operator", newest).await.unwrap();
    let replay = Replay::read(text.get()).unwrap();
    assert!(replay.compare(replay.plan()).unwrap().equal);
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_are_for_operators_and_only_of_rounds_that_kept_them() {
    let world = World::new(&[4]).await;
    world.around.ask(&job("job_a", "ann"));
    world.until("all of it", |all| all.len() == 4).await;
    let round = newest(&world).await.round;
    for who in ["ann", "viewer", "job-converter"] {
        let refused = inputs(&world, who, round).await.unwrap_err();
        assert_eq!(refused.problem().unwrap().code, Code::Forbidden, "{who}");
    }
    let absent = inputs(&world, "operator", 999_999).await.unwrap_err();
    assert_eq!(absent.problem().unwrap().code, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_over_the_limit_says_that_its_rounds_cannot_be_replayed() {
    let mut world = World::prepared(&[4]).await;
    world.settings.inputs_entries = 3;
    world.start().await;
    world.around.ask(&service("svc_a.0", "ann"));
    world.until_one("svc_a.0", "starts", stays).await;
    world.around.ask(&service("svc_b.0", "ann"));
    world.until_one("svc_b.0", "starts", stays).await;
    // Rounds are written down after what they decided can be seen.
    let newest = until("a round over the limit", async || {
        Some(newest(&world).await).filter(|round| round.without_inputs.is_some())
    })
    .await;
    let why = newest.without_inputs.unwrap();
    assert!(why.contains("inputs_entries"), "{why}");
    let absent = inputs(&world, "operator", newest.round).await.unwrap_err();
    assert_eq!(absent.problem().unwrap().code, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_over_the_limit_are_not_kept_and_said_where_they_are_asked_for() {
    let mut world = World::prepared(&[4]).await;
    world.settings.inputs_bytes = 40;
    world.start().await;
    world.around.ask(&service("svc_a.0", "ann"));
    world.until_one("svc_a.0", "starts", stays).await;
    let newest = newest(&world).await;
    let absent = inputs(&world, "operator", newest.round).await.unwrap_err();
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
    let mut world = World::prepared(&[64]).await;
    // One chain may be 64 rounds; this leaves room for one more round beside it.
    world.settings.inputs_rounds = 65;
    world.start().await;
    for at in 0..3 {
        world.around.ask(&service(&format!("svc_{at}.0"), "ann"));
        world
            .until_one(&format!("svc_{at}.0"), "starts", stays)
            .await;
        world.settled().await;
        world.restart().await;
    }
    let newest = rounds(&world).await;
    let mut kept = Vec::new();
    for round in &newest {
        if inputs(&world, "operator", round.round).await.is_ok() {
            kept.push(round.round);
        }
    }
    assert!(kept.len() < newest.len(), "{kept:?} of {}", newest.len());
    assert!(kept.contains(&newest[0].round));
}
