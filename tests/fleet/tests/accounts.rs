//! Each user's work runs under an account of its own, which is the same on all nodes.

use std::path::Path;
use std::time::Duration;

use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::Client;
use hayward_tests_fleet::{
    Agent, TestFleet, Timing, is_running, job, submit, task_outcomes, wait_for_end, wait_for_view,
};
use hayward_vocabulary::WorkId;

const LIMIT: Duration = Duration::from_mins(1);

/// Starts a fleet of two nodes with accounts of the range. Returns `None` if only root can do that.
async fn start_fleet() -> Option<TestFleet> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only an agent that is root runs work under other accounts");
        return None;
    }
    let environment = vec![("HAYWARD_RUN_AS", "range".to_owned())];
    let mut fleet = TestFleet::start_with_environment(Timing::default(), environment).await;
    for node in ["node-1", "node-2"] {
        fleet.start_agent(node, &Agent::default());
    }
    fleet.wait_until_nodes_take_work(2).await;
    Some(fleet)
}

/// Submits a job of one task for one node.
async fn submit_to(client: &Client, node: &str, script: &str) -> WorkId {
    let mut submission = job(&["sh", "-c", script], 1);
    submission.machines = vec![node.parse().expect("a node name")];
    submission.max_attempts = Some(1);
    submit(client, "jobs", &submission).await
}

/// Runs a script on a node. Returns its exit code and its output.
async fn run_on(client: &Client, node: &str, script: &str) -> (Option<i32>, String) {
    let id = submit_to(client, node, script).await;
    wait_for_end(client, &id, LIMIT).await;
    let outcome = task_outcomes(client, &id).await.remove(0);
    (outcome.exit_code, outcome.output)
}

/// (TC-22)
#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_the_same_account_on_all_nodes_and_no_other_user_has_it() {
    let Some(fleet) = start_fleet().await else {
        return;
    };
    let mut seen = Vec::new();
    for user in ["ada", "ben"] {
        let client = fleet.client("job-converter", &format!("user-{user}"));
        for node in ["node-1", "node-2"] {
            let (code, output) = run_on(&client, node, "id -u; id -G; id -g").await;
            assert_eq!(code, Some(0), "{output}");
            let lines: Vec<&str> = output.lines().collect();
            assert_eq!(lines, [lines[0]; 3], "one number, and no further group");
            let uid: u32 = lines[0].parse().expect("a number");
            seen.push(uid);
        }
    }
    assert_eq!(seen, [seen[0], seen[0], seen[2], seen[2]]);
    seen.dedup();
    assert_eq!(seen, [1_900_000_000, 1_900_000_001]);
}

/// (TC-26)
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_only_users_takes_no_work_of_others() {
    let environment = vec![("HAYWARD_ONLY_USERS", r#"["ada"]"#.to_owned())];
    let mut fleet = TestFleet::start_with_environment(Timing::default(), environment).await;
    fleet.start_agent("node-1", &Agent::default());
    fleet.wait_until_nodes_take_work(1).await;
    let ben = fleet.client("job-converter", "user-ben");
    let waiting = submit(&ben, "jobs", &job(&["true"], 1)).await;
    let path = format!("/v1/jobs/{waiting}");
    let is_judged = |view: &WorkView| {
        let reason = view.reason.as_deref();
        reason.is_some_and(|reason| reason.contains("may not go there"))
    };
    wait_for_view(&ben, &path, LIMIT, is_judged).await;
    let ada = fleet.client("job-converter", "user-ada");
    let (code, output) = run_on(&ada, "node-1", "true").await;
    assert_eq!(code, Some(0), "{output}");
    let view: WorkView = ben.get(&path).await.expect("a view");
    assert_eq!(view.state, WorkState::Waiting, "{view:?}");
    assert!(view.processes.is_empty(), "{view:?}");
    // The node is for all users again.
    fleet.kill("node-1");
    fleet.set_environment(Vec::new());
    fleet.start_agent("node-1", &Agent::default());
    let view = wait_for_end(&ben, &waiting, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
}

/// Script that does as another task what its user must not do, with a code for each success.
fn attack(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "cd {folder}; pid=$(cat pid); cat secret && exit 11; cat /proc/$pid/environ && exit 12; \
         kill -0 $pid && exit 13; ls $(cat work) && exit 14; exit 0"
    )
}

/// (TC-21)
#[tokio::test(flavor = "multi_thread")]
async fn a_task_cannot_read_or_end_the_task_of_another_user() {
    let Some(fleet) = start_fleet().await else {
        return;
    };
    let (ada, ben) = (
        fleet.client("job-converter", "user-ada"),
        fleet.client("job-converter", "user-ben"),
    );
    let folder = fleet.dir.path().join("shared");
    std::fs::create_dir(&folder).expect("a folder");
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(&folder, open_to_all).expect("permissions are set");
    let victim = format!(
        "work=$PWD; cd {}; umask 077; echo secret > secret; umask 022; echo $work > work; \
         echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done",
        folder.display()
    );
    let id = submit_to(&ada, "node-1", &victim).await;
    wait_for_view(&ada, &format!("/v1/jobs/{id}"), LIMIT, is_running).await;
    hayward_testkit::until("the task to write its process id", async || {
        folder.join("pid").exists().then_some(())
    })
    .await;
    let script = attack(&folder);
    let (code, output) = run_on(&ben, "node-1", &script).await;
    assert_eq!(code, Some(0), "{output}");
    // The same script succeeds for the user of the task.
    let (code, output) = run_on(&ada, "node-1", &script).await;
    assert_eq!(code, Some(11), "{output}");
    let (code, output) = run_on(&ada, "node-1", &script.replace("&& exit 11", "")).await;
    assert_eq!(code, Some(12), "{output}");
    std::fs::write(folder.join("go"), "").expect("a file");
    let view = wait_for_end(&ada, &id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
}
