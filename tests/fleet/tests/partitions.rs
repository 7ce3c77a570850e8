//! Work on nodes that are cut off, stopped or killed. The agents are in network namespaces of their
//! own, and their work writes marks with a clock that it shares with the test (W7).

use std::time::Duration;

use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::submission::ServiceSubmission;
use hayward_job_converter_api::unreachable::{ReplaceAfter, UnreachableChoice, UnreachableWord};
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{Agent, Island, Loss, Marks, TestFleet, reaches, service, submit};
use hayward_vocabulary::{AllocationId, NodeName, WorkId};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_mins(1);

/// Two agents, each on its island. If islands are not possible, `new` prints the reason and returns
/// `None`.
struct Sea {
    fleet: TestFleet,
    islands: Vec<(String, Island)>,
    ada: Client,
}

impl Sea {
    async fn new() -> Option<Self> {
        let islands: Result<Vec<_>, String> = (1..=2)
            .map(|number| Ok((format!("node-{number}"), Island::new()?)))
            .collect();
        let islands = match islands {
            Ok(islands) => islands,
            Err(why) => {
                eprintln!("skipped: {why}");
                return None;
            }
        };
        let fleet = TestFleet::open().await;
        let ada = fleet.client("job-converter", "user-ada");
        Some(Self {
            fleet,
            islands,
            ada,
        })
    }

    fn start(&mut self, number: usize) {
        let (node, island) = &self.islands[number];
        self.fleet.start_agent_on(island, node, &Agent::default());
    }

    fn lose(&self, node: &NodeName, loss: Loss) {
        let found = self.islands.iter().find(|(name, _)| name == node.as_str());
        found.expect("an island").1.lose(loss);
    }

    async fn submit(&self, command: Vec<String>, choice: UnreachableChoice) -> WorkId {
        let body = ServiceSubmission {
            command,
            when_unreachable: Some(choice),
            ..service(&[], 1)
        };
        submit(&self.ada, "services", &body).await
    }

    /// Waits until the allocation is shown as unreachable, with the consequence for it.
    async fn is_awaited(&self, id: &WorkId, allocation: &AllocationId) {
        let path = format!("/v1/services/{id}");
        let view: WorkView = self.ada.get(&path).await.expect("a view");
        let away = view
            .processes
            .iter()
            .any(|process| process.allocation == *allocation && process.state == "unreachable");
        let reason = view.reason.as_deref().unwrap_or_default();
        assert!(away && reason.contains("unreachable"), "{view:?}");
    }

    /// Waits until the work runs in one process as another allocation than `other`. Returns its
    /// allocation and node.
    async fn runs(&self, id: &WorkId, other: Option<&AllocationId>) -> (AllocationId, NodeName) {
        let path = format!("/v1/services/{id}");
        let view = reaches(&self.ada, &path, LIMIT, |view| {
            running(view, other).is_some()
        })
        .await;
        running(&view, other).expect("just seen")
    }
}

fn running(view: &WorkView, other: Option<&AllocationId>) -> Option<(AllocationId, NodeName)> {
    let process = view
        .processes
        .iter()
        .find(|process| process.state == "running" && Some(&process.allocation) != other)?;
    Some((process.allocation.clone(), process.node.clone()))
}

/// Waits until the allocation has written another mark.
async fn goes_on(marks: &Marks, id: &AllocationId) {
    let before = marks.last_of(id);
    until_within(&format!("{id} to go on"), LIMIT, async || {
        (marks.last_of(id) > before).then_some(())
    })
    .await;
}

/// Exclusive work has ended before its successor begins, whatever happens to its node (I4).
#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_never_runs_twice() {
    let Some(mut sea) = Sea::new().await else {
        return;
    };
    sea.start(0);
    sea.start(1);
    sea.fleet.nodes_take_work(2).await;
    let marks = Marks::new(sea.fleet.dir.path(), "alone");
    let choice = UnreachableChoice::Word(UnreachableWord::Exclusive);
    let id = sea.submit(marks.stubborn(), choice).await;
    let (mut allocation, mut node) = sea.runs(&id, None).await;
    for trouble in [
        Some(Loss::Everything),
        Some(Loss::ToIt),
        Some(Loss::FromIt),
        // The agent is stopped for longer than its lease.
        None,
    ] {
        goes_on(&marks, &allocation).await;
        match trouble {
            Some(loss) => sea.lose(&node, loss),
            None => sea.fleet.signal(node.as_str(), Signal::SIGSTOP),
        }
        let (next, elsewhere) = sea.runs(&id, Some(&allocation)).await;
        assert_ne!(elsewhere, node, "{trouble:?}");
        goes_on(&marks, &next).await;
        marks.never_two();
        match trouble {
            Some(_) => sea.lose(&node, Loss::Nothing),
            None => sea.fleet.signal(node.as_str(), Signal::SIGCONT),
        }
        // After the repair both nodes are healthy, and the original process is the only one.
        sea.fleet.nodes_take_work(2).await;
        let path = format!("/v1/services/{id}");
        let view = reaches(&sea.ada, &path, LIMIT, |view| view.processes.len() == 1).await;
        assert_eq!(view.processes[0].allocation, next, "{trouble:?}: {view:?}");
        goes_on(&marks, &next).await;
        marks.never_two();
        (allocation, node) = (next, elsewhere);
    }
}

/// Each choice that a submitter has is tested on the same cut.
#[tokio::test(flavor = "multi_thread")]
async fn each_choice_for_an_unreachable_node_is_carried_out() {
    let Some(mut sea) = Sea::new().await else {
        return;
    };
    sea.start(0);
    sea.fleet.nodes_take_work(1).await;
    let after = |replace_after_ms| UnreachableChoice::After(ReplaceAfter { replace_after_ms });
    let mut works = Vec::new();
    for (name, choice, moves) in [
        (
            "wait",
            UnreachableChoice::Word(UnreachableWord::Wait),
            false,
        ),
        (
            "replace",
            UnreachableChoice::Word(UnreachableWord::Replace),
            true,
        ),
        ("soon", after(1_000), true),
        ("late", after(600_000), false),
    ] {
        let marks = Marks::new(sea.fleet.dir.path(), name);
        let id = sea.submit(marks.command(), choice).await;
        let (allocation, _) = sea.runs(&id, None).await;
        works.push((name, id, marks, allocation, moves));
    }
    let first = NodeName::new(sea.islands[0].0.as_str()).expect("a name");
    sea.start(1);
    sea.fleet.nodes_take_work(2).await;
    sea.lose(&first, Loss::Everything);
    let mut successors = Vec::new();
    for (_, id, _, allocation, moves) in &works {
        if *moves {
            let (next, elsewhere) = sea.runs(id, Some(allocation)).await;
            assert_ne!(elsewhere, first);
            successors.push((id, next));
        }
    }
    // No service reaches the processes, and they run on (G6).
    for (_, id, marks, allocation, moves) in &works {
        goes_on(marks, allocation).await;
        if !moves {
            sea.is_awaited(id, allocation).await;
        }
    }
    sea.lose(&first, Loss::Nothing);
    sea.fleet.nodes_take_work(2).await;
    for (name, id, marks, allocation, moves) in &works {
        let successor = successors.iter().find(|(before, _)| *before == id);
        let expected = successor.map_or(allocation, |(_, next)| next);
        let path = format!("/v1/services/{id}");
        let alone = |view: &WorkView| {
            view.processes.len() == 1 && running(view, None).is_some_and(|(is, _)| is == *expected)
        };
        reaches(&sea.ada, &path, LIMIT, alone).await;
        goes_on(marks, expected).await;
        let lives = marks.lives();
        assert_eq!(lives.len(), if *moves { 2 } else { 1 }, "{name}: {lives:?}");
        if *moves {
            until_within(
                &format!("the old {name} to be stopped"),
                LIMIT,
                async || {
                    let last = marks.last_of(allocation);
                    goes_on(marks, expected).await;
                    (marks.last_of(allocation) == last).then_some(())
                },
            )
            .await;
        }
    }
}
