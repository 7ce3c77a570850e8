//! Upgrade from the previous version to this one and back, one process after the other, while work
//! runs. The two versions run side by side on the tables of this one (A17).

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use hayward::prepare::SERVICES;
use hayward_job_converter_api::WorkState;
use hayward_tests_fleet::{
    Agent, Witness, World, all_right, ends, is_running, job, outcomes, reaches, service, submit,
};

const LIMIT: Duration = Duration::from_mins(2);
const TASKS: u64 = 1_000;
const NODES: [&str; 2] = ["node-1", "node-2"];

/// Runs the program that will replace the running one, as an operator does.
fn operator(world: &World, words: &[&str]) -> String {
    let mut command = world.command("operator");
    command
        .args(words)
        .env("HAYWARD_STATE", world.dir.path())
        .env("HAYWARD_KEYS", world.keys.dir())
        .env("HAYWARD_ADMIN_URL", world.admin_url())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    assert!(status.success(), "{words:?}: {said}");
    said
}

/// Replaces every service and then every agent by this program. After each replacement, new work
/// succeeds.
async fn becomes(world: &mut World, program: &Path) {
    let keys = world.keys.dir().display().to_string();
    program.clone_into(&mut world.program);
    operator(world, &["backup"]);
    println!("{}", operator(world, &["preflight"]));
    operator(world, &["prepare", "--keys", &keys]);
    for (service, _) in SERVICES {
        world.terminate(service);
        world.start_service(service);
        world.services_are_ready().await;
        works(world).await;
    }
    for node in NODES {
        world.terminate(node);
        world.start_agent(node, &Agent::default());
        world.nodes_take_work(NODES.len()).await;
        works(world).await;
    }
}

async fn works(world: &World) {
    let ada = world.client("job-converter", "user-ada");
    let id = submit(&ada, "jobs", &job(&["true"], 3)).await;
    assert_eq!(ends(&ada, &id, LIMIT).await.state, WorkState::Completed);
}

/// The argument is the program of the previous version. `tests/upgrade.sh` builds it.
#[tokio::main]
async fn main() {
    let before = std::env::args_os().nth(1);
    let before = PathBuf::from(before.expect("the program of the version before"));
    let mut world = World::by(before.clone()).await;
    for node in NODES {
        world.start_agent(node, &Agent::default());
    }
    world.nodes_take_work(NODES.len()).await;
    let ada = world.client("job-converter", "user-ada");
    let up = submit(&ada, "services", &service(&["sleep", "10001"], 2)).await;
    let up = format!("/v1/services/{up}");
    let places = async || {
        let view = reaches(&ada, &up, LIMIT, |view| {
            is_running(view) && view.processes.len() == 2
        });
        let mut places: Vec<String> = view
            .await
            .processes
            .iter()
            .map(|process| process.allocation.to_string())
            .collect();
        places.sort();
        places
    };
    let kept = places().await;
    let witness = Witness::new(world.dir.path());
    let mut work = job(&[], TASKS);
    work.command = witness.command("0.3");
    let long = submit(&ada, "jobs", &work).await;

    becomes(&mut world, hayward_tests_fleet::program()).await;
    becomes(&mut world, &before).await;

    let view = ends(&ada, &long, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    all_right(&outcomes(&ada, &long).await, TASKS);
    for task in 0..TASKS {
        assert_eq!(witness.times(task), 1, "task {task} ran more than once");
    }
    assert_eq!(places().await, kept, "the service was never interrupted");
    assert_eq!(world.alive_anywhere("sleep 10001"), 2);
    println!("the fleet was taken to this version and back, and nothing was lost");
}
