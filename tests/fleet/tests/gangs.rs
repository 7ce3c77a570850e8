//! Gangs of real processes. A gang starts whole, and each of its tasks runs once, even if
//! job-converter is killed meanwhile. Further tests cover lost nodes, refusals and output (I13).

use std::process::{Output, Stdio};
use std::time::Duration;

use hayward::prepare;
use hayward_job_converter_api::applications::ApplicationView;
use hayward_rm_scheduler_api::policy::{PolicyAnswer, PolicyView};
use hayward_service::Client;
use hayward_service::auth::Groups;
use hayward_tests_fleet::{Agent, TaskRunCounter, TestFleet, Timing};
use hayward_vocabulary::ExitCause;
use http::Method;
use http::header::IF_MATCH;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const TASKS: u64 = 4;

/// Creates the queue `root.a` in the pool of all nodes. `submitters` is its access list: users, a
/// space and groups, or `*` for every user.
async fn configure_queue(fleet: &TestFleet, submitters: &str) {
    let operator = fleet.client("rm-scheduler", "operator");
    let current: PolicyView = operator.get("/v1/policy").await.expect("the policy");
    let policy = json!({
        "pools": { "default": { "queues": { "queues": { "a": { "submit_acl": submitters } } } } },
        "classes": {},
    });
    let call = operator.call(Method::PUT, "/v1/policy");
    let call = call.header(IF_MATCH, &format!("\"{}\"", current.generation));
    let _: PolicyAnswer = call.body(&policy).send().await.expect("it is accepted");
}

async fn wait_for_application(
    client: &Client,
    description: &str,
    is_expected: impl Fn(&ApplicationView) -> bool,
) -> ApplicationView {
    let mut last = String::new();
    hayward_testkit::until_within(description, LIMIT, async || {
        let view: ApplicationView = client.get("/v1/applications/gang").await.ok()?;
        let summary = format!("{} {:?} {:?}", view.state, view.task_states, view.why);
        if summary != last {
            // Printed when the test fails.
            eprintln!("{summary}");
            last = summary;
        }
        is_expected(&view).then_some(view)
    })
    .await
}

/// Submits a gang of four tasks that needs two nodes.
async fn submit_gang(ada: &Client, runs: &TaskRunCounter) {
    // One node of 4 GiB has space for two tasks, and two nodes for all of them.
    let gang = json!({
        "queueName": "root.a",
        "taskGroups": [{
            "name": "worker", "minMember": TASKS,
            "minResource": { "memory": "2Gi" },
        }],
    });
    let _: Value = ada
        .put("/v1/applications/gang", &gang)
        .await
        .expect("added");
    for task in 0..TASKS {
        let command = runs.command("1").into_iter();
        let command = command.map(|word| word.replace("{task}", &task.to_string()));
        let body = json!({
            "command": command.collect::<Vec<String>>(), "taskGroupName": "worker",
        });
        let path = format!("/v1/applications/gang/tasks/{task}");
        let _: Value = ada.put(&path, &body).await.expect("added");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_starts_whole_and_survives_kills_of_its_service() {
    let mut fleet = TestFleet::start_with_agents(1).await;
    configure_queue(&fleet, "*").await;
    let ada = fleet.client("job-converter", "user-ada");
    let runs = TaskRunCounter::new(fleet.dir.path());
    submit_gang(&ada, &runs).await;
    let is_reserving = |view: &ApplicationView| {
        let is_reported = view.why.iter().any(|it| it.reason == "gang_incomplete");
        view.state == "Reserving" && is_reported
    };
    let view = wait_for_application(&ada, "the whole gang to wait", is_reserving).await;
    assert!(view.placeholders.iter().all(|it| it.node.is_none()));
    fleet.kill("job-converter");
    fleet.start_service("job-converter");
    fleet.wait_until_services_are_ready().await;
    wait_for_application(&ada, "the gang to wait as before", is_reserving).await;

    fleet.start_agent("node-2", &Agent::default());
    wait_for_application(&ada, "tasks to run", |view| {
        view.task_states
            .get("Bound")
            .is_some_and(|count| *count > 0)
    })
    .await;
    fleet.kill("job-converter");
    fleet.start_service("job-converter");
    fleet.wait_until_services_are_ready().await;
    let view = wait_for_application(&ada, "all tasks to end", |view| {
        view.task_states.get("Completed") == Some(&TASKS)
    })
    .await;
    let group = &view.task_groups[0];
    let members = u32::try_from(TASKS).expect("a few");
    assert_eq!(
        (group.count, group.replaced, group.timedout),
        (members, members, 0)
    );
    for task in 0..TASKS {
        assert_eq!(runs.count(task), 1, "task {task}");
    }
    let nodes: std::collections::BTreeSet<_> = view.tasks.iter().map(|it| &it.node).collect();
    assert_eq!(nodes.len(), 2);
}

/// Submits a gang of two, with two tasks of this command.
async fn submit_gang_of_two(ada: &Client, policy: &str, command: &[String]) {
    let gang = json!({
        "queueName": "root.a",
        "schedulingPolicyParameters": policy,
        "taskGroups": [{
            "name": "worker", "minMember": 2, "minResource": { "memory": "1Gi" },
        }],
    });
    let _: Value = ada
        .put("/v1/applications/gang", &gang)
        .await
        .expect("added");
    submit_tasks(ada, [0, 1], command).await;
}

async fn submit_tasks(ada: &Client, tasks: [u64; 2], command: &[String]) {
    for task in tasks {
        let arguments = command.iter();
        let arguments: Vec<String> = arguments
            .map(|word| word.replace("{task}", &task.to_string()))
            .collect();
        let body = json!({ "command": arguments, "taskGroupName": "worker" });
        let path = format!("/v1/applications/gang/tasks/{task}");
        let _: Value = ada.put(&path, &body).await.expect("added");
    }
}

/// The agent loses its journal after the tasks are allocated, so it cannot know whether they ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_never_ran_is_not_completed() {
    let mut fleet = TestFleet::start_with_timing(Timing::without_node_loss()).await;
    fleet.start_agent("node-1", &Agent::default());
    fleet.wait_until_nodes_take_work(1).await;
    configure_queue(&fleet, "*").await;
    let ada = fleet.client("job-converter", "user-ada");
    let runs = TaskRunCounter::new(fleet.dir.path());
    fleet.kill("node-1");
    let policy = "placeholderTimeoutInSeconds=2 gangRepairInSeconds=2";
    submit_gang_of_two(&ada, policy, &runs.command("1")).await;
    wait_for_application(&ada, "both tasks to be allocated", |view| {
        view.task_states.get("Allocated") == Some(&2)
    })
    .await;
    let journal = fleet.dir.path().join("agents/node-1/journal");
    std::fs::write(journal, [0; 500]).expect("a damaged journal");
    fleet.start_agent("node-1", &Agent::default());
    let view = wait_for_application(&ada, "the application to fail", |view| {
        view.failure.is_some()
    })
    .await;
    assert_eq!(view.failure.expect("a failure").code, "gang_short");
    for task in &view.tasks {
        assert_eq!(task.state, "Killed");
        let cause = task.exit.as_ref().map(|it| it.cause);
        assert_eq!(cause, Some(ExitCause::LaunchUnknown));
    }
    assert_eq!((runs.count(0), runs.count(1)), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_loses_all_its_tasks_with_their_node_is_repaired_elsewhere() {
    let mut fleet = TestFleet::start_with_agents(1).await;
    configure_queue(&fleet, "*").await;
    let ada = fleet.client("job-converter", "user-ada");
    let runs = TaskRunCounter::new(fleet.dir.path());
    submit_gang_of_two(&ada, "", &runs.command("600")).await;
    wait_for_application(&ada, "both tasks to run", |view| {
        view.task_states.get("Bound") == Some(&2)
    })
    .await;
    fleet.start_agent("node-2", &Agent::default());
    fleet.wait_until_nodes_take_work(2).await;
    fleet.lose_node("node-1");
    let view = wait_for_application(&ada, "the gang to be repaired", |view| {
        view.task_states.get("Killed") == Some(&2) && view.task_groups[0].held == 2
    })
    .await;
    assert_eq!(view.scheduling_state.as_deref(), Some("Running"));
    assert_eq!(view.warnings.len(), 2, "{:?}", view.warnings);
    submit_tasks(&ada, [2, 3], &runs.command("0")).await;
    let view = wait_for_application(&ada, "the new tasks to end", |view| {
        view.task_states.get("Completed") == Some(&2)
    })
    .await;
    assert!(view.failure.is_none());
    assert_eq!((runs.count(2), runs.count(3)), (1, 1));
}

/// The application fails at once, with the nearest queue named, and needs no task for that.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_in_an_unknown_queue_fails() {
    let fleet = TestFleet::start().await;
    configure_queue(&fleet, "*").await;
    let ada = fleet.client("job-converter", "user-ada");
    let application = json!({ "queueName": "root.a.b" });
    let _: Value = ada
        .put("/v1/applications/gang", &application)
        .await
        .expect("added");
    let view = wait_for_application(&ada, "a refusal", |view| view.state == "Failed").await;
    let message = view.failure.expect("a failure").message;
    assert!(message.contains("there is no queue root.a.b"), "{message}");
    assert!(message.contains("the nearest is root.a"), "{message}");
}

/// Runs a command of `hayward`, and returns its exit status and output.
async fn run_cli(fleet: &TestFleet, arguments: &[&str]) -> Output {
    let mut command = fleet.command("cli");
    command
        .args(arguments)
        .env("HAYWARD_KEYS", fleet.keys.dir())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = tokio::task::spawn_blocking(move || command.output());
    output.await.expect("it ran").expect("it can be started")
}

/// Runs `hayward logs --follow` as ada until the work has ended, and returns the output.
async fn follow_logs(fleet: &TestFleet, arguments: &[&str]) -> String {
    let all_arguments = [&["logs", "--user", "ada", "--follow"], arguments].concat();
    let output = run_cli(fleet, &all_arguments).await;
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The command that submits a gang reports that it will not start.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_cannot_start_is_reported_at_submission() {
    let fleet = TestFleet::start_with_agents(1).await;
    configure_queue(&fleet, "ada").await;
    let submit = async |user: &str, members: u32| {
        let gang = json!({
            "queueName": "root.a",
            "groups": [{
                "name": "worker", "minMember": members, "minResource": { "memory": "1Gi" },
                "command": ["true"],
            }],
        });
        let file = fleet.keys.dir().join(format!("{user}-{members}.yaml"));
        std::fs::write(&file, gang.to_string()).expect("a file");
        let file = file.to_str().expect("a path").to_owned();
        let output = run_cli(&fleet, &["submit", "--user", user, "--gang", &file]).await;
        let message = String::from_utf8(output.stderr).expect("text");
        (output.status.success(), message)
    };
    let (accepted, message) = submit("ben", 2).await;
    assert!(!accepted, "{message}");
    assert!(
        message.contains("user ben may not submit to queue root.a"),
        "{message}"
    );
    // The application stays, because nodes may be added.
    let (accepted, message) = submit("ada", 900).await;
    assert!(accepted, "{message}");
    assert!(message.contains("it can never start"), "{message}");
    assert!(message.contains("of the 900 processes could"), "{message}");
}

/// The queue admits the group `science`. The token of ada names the group, the token of ben does
/// not.
#[tokio::test(flavor = "multi_thread")]
async fn output_of_gang_tasks_is_read_by_name_and_by_allocation() {
    let fleet = TestFleet::start_with_agents(1).await;
    configure_queue(&fleet, " science").await;
    let science = Groups::new(vec!["science".to_owned()]).expect("a name");
    prepare::create_user_token_with_groups(&fleet.keys, "ada", science).expect("a token");
    let [ada, ben] = ["user-ada", "user-ben"].map(|it| fleet.client("job-converter", it));
    let gang = json!({
        "pool": "default", "queueName": "root.a",
        "taskGroups": [{ "name": "worker", "minMember": 2, "minResource": { "memory": "1Gi" } }],
    });
    let _: Value = ben
        .put("/v1/applications/bens", &gang)
        .await
        .expect("added");
    let failure = hayward_testkit::until_within("a refusal", LIMIT, async || {
        let view: ApplicationView = ben.get("/v1/applications/bens").await.ok()?;
        view.failure
    });
    let message = failure.await.message;
    assert!(
        message.contains("user ben may not submit to queue root.a"),
        "{message}"
    );

    let _: Value = ada
        .put("/v1/applications/gang", &gang)
        .await
        .expect("added");
    for task in ["one", "two"] {
        let body = json!({
            "command": ["sh", "-c", format!("echo from {task}")], "taskGroupName": "worker",
        });
        let path = format!("/v1/applications/gang/tasks/{task}");
        let _: Value = ada.put(&path, &body).await.expect("added");
    }
    let view = wait_for_application(&ada, "both tasks to end", |view| {
        view.task_states.get("Completed") == Some(&2)
    })
    .await;
    let output = follow_logs(&fleet, &["gang"]).await;
    assert!(
        output.contains("from one\n") && output.contains("from two\n"),
        "{output}"
    );
    assert_eq!(
        follow_logs(&fleet, &["gang", "--task", "two"]).await,
        "from two\n"
    );
    let work = view.tasks[1].work.to_string();
    assert_eq!(follow_logs(&fleet, &[&work]).await, "from two\n");
    let containers = fleet.client("container-manager", "user-ada");
    let list: Value = containers.get("/v1/containers").await.expect("a list");
    let list = list["containers"].as_array().expect("some");
    let container = list.iter().find(|it| it["work"] == json!(work));
    let allocation = container.expect("its process")["id"]
        .as_str()
        .expect("an id");
    assert_eq!(follow_logs(&fleet, &[allocation]).await, "from two\n");
}
