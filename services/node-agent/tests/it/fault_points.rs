//! Crashes the agent or a supervisor at each fault point, and restarts a crashed agent. No program
//! runs twice, exactly one outcome is reported, and no process or file is left.
//!
//! Each case runs two containers, one after the other: `short` ends by itself with status 3, and
//! `long` is stopped.

use std::collections::BTreeSet;
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_node_agent::fault_points::Point;
use hayward_vocabulary::{Exit, ExitCause};

use crate::agent_process::{Agent, remove_all_entries};
use crate::fake_control_plane::{
    ControlPlaneState, FakeControlPlane, desired_entry, find_report, id, shell,
};

/// Outcome that is reported for the container `short`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The exit of the program: the program ran to its end.
    ProgramExit,
    /// A fault of the node: the program was not started, or its exit was lost with its supervisor.
    NodeFault,
    /// It is unknown whether the program was started.
    LaunchUnknown,
}

use Outcome::{LaunchUnknown, NodeFault, ProgramExit};

/// A crash at a fault point. A process passes a point once for each record that it writes, or for
/// each container. The first passes are for the container `short`.
struct Case {
    point: Point,
    /// Number of the pass that crashes.
    pass: u32,
    /// Outcomes that are correct after this crash.
    allowed: &'static [Outcome],
}

const fn case(point: Point, pass: u32, allowed: &'static [Outcome]) -> Case {
    Case {
        point,
        pass,
        allowed,
    }
}

/// Crashes at all fault points, with the outcomes that are correct after each of them.
const CASES: &[Case] = &[
    // The first update of the desired set contains `short`, and the second one lacks it again.
    case(Point::AbsorbBefore, 1, &[ProgramExit]),
    case(Point::AbsorbBefore, 2, &[ProgramExit]),
    case(Point::AbsorbAfter, 1, &[ProgramExit]),
    case(Point::AbsorbAfter, 2, &[ProgramExit]),
    case(Point::PositionBefore, 2, &[ProgramExit]),
    case(Point::PositionAfter, 2, &[ProgramExit]),
    // The records of `short` are its intent, its start, its end and its removal, in this order.
    // After the intent was written, no agent starts the container again.
    case(Point::JournalBefore, 1, &[ProgramExit]),
    case(Point::JournalWritten, 1, &[ProgramExit, NodeFault]),
    case(Point::JournalAfter, 1, &[NodeFault]),
    case(Point::JournalBefore, 2, &[ProgramExit]),
    case(Point::JournalWritten, 2, &[ProgramExit]),
    case(Point::JournalAfter, 2, &[ProgramExit]),
    case(Point::JournalBefore, 3, &[ProgramExit]),
    case(Point::JournalWritten, 3, &[ProgramExit]),
    case(Point::JournalAfter, 3, &[ProgramExit]),
    case(Point::JournalBefore, 4, &[ProgramExit]),
    case(Point::JournalWritten, 4, &[ProgramExit]),
    case(Point::JournalAfter, 4, &[ProgramExit]),
    case(Point::FolderBefore, 1, &[NodeFault]),
    case(Point::FolderAfter, 1, &[NodeFault]),
    case(Point::SpawnBefore, 1, &[NodeFault]),
    // The supervisor lives on. The next agent may find it before, during or after its start.
    case(
        Point::SpawnAfter,
        1,
        &[ProgramExit, NodeFault, LaunchUnknown],
    ),
    case(Point::StopBefore, 1, &[ProgramExit]),
    case(Point::StopAfter, 1, &[ProgramExit]),
    case(Point::OutputBefore, 1, &[ProgramExit]),
    case(Point::OutputAfter, 1, &[ProgramExit]),
    // The agent sends reports in parallel with the launch, so each outcome is possible.
    case(
        Point::ReportBefore,
        1,
        &[ProgramExit, NodeFault, LaunchUnknown],
    ),
    case(
        Point::ReportBefore,
        2,
        &[ProgramExit, NodeFault, LaunchUnknown],
    ),
    case(
        Point::ReportBefore,
        3,
        &[ProgramExit, NodeFault, LaunchUnknown],
    ),
    case(
        Point::ReportAfter,
        1,
        &[ProgramExit, NodeFault, LaunchUnknown],
    ),
    case(
        Point::ReportAfter,
        2,
        &[ProgramExit, NodeFault, LaunchUnknown],
    ),
    case(
        Point::ReportAfter,
        3,
        &[ProgramExit, NodeFault, LaunchUnknown],
    ),
    case(Point::ForgetBefore, 1, &[ProgramExit]),
    case(Point::ForgetAfter, 1, &[ProgramExit]),
    // These points are in supervisors. Each supervisor crashes there, and the agent lives on.
    case(Point::ClaimBefore, 1, &[NodeFault]),
    case(Point::ClaimAfter, 1, &[LaunchUnknown]),
    case(Point::ProgramBefore, 1, &[LaunchUnknown]),
    case(Point::ProgramAfter, 1, &[LaunchUnknown]),
    case(Point::StartedAfter, 1, &[NodeFault]),
    case(Point::ExitBefore, 1, &[NodeFault]),
    case(Point::ExitAfter, 1, &[ProgramExit]),
];

/// Number of concurrent cases.
const CONCURRENT_CASES: usize = 4;

#[test]
fn every_fault_point_has_a_case() {
    for point in Point::ALL {
        let has_case = CASES.iter().any(|case| case.point == point);
        assert!(has_case, "{point:?} has no case");
    }
    let names: BTreeSet<_> = Point::ALL.iter().map(|point| point.name()).collect();
    assert_eq!(names.len(), Point::ALL.len(), "two points have one name");
}

#[test]
fn a_crash_at_any_fault_point_runs_nothing_twice_and_loses_no_outcome() {
    let started_at = std::time::Instant::now();
    let next = AtomicUsize::new(0);
    // Each case has a thread, because starting an agent blocks the thread of its control plane.
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENT_CASES {
            scope.spawn(|| {
                while let Some(case) = CASES.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let runtime = tokio::runtime::Builder::new_multi_thread()
                        .worker_threads(2)
                        .enable_all()
                        .build();
                    runtime.unwrap().block_on(run_case(case));
                }
            });
        }
    });
    println!(
        "{} crashes and recoveries in {:?}",
        CASES.len(),
        started_at.elapsed()
    );
}

/// An agent that is restarted without a fault point after a crash.
struct RestartingAgent {
    agent: Agent,
    crashes: u32,
}

impl RestartingAgent {
    fn has_ended(child: &mut Child) -> bool {
        child.try_wait().unwrap().is_some()
    }

    /// Waits until `condition` holds. Restarts the agent if it has crashed.
    async fn wait_until(
        &mut self,
        control: &FakeControlPlane,
        description: &str,
        condition: impl Fn(&ControlPlaneState) -> bool,
    ) {
        let deadline = tokio::time::Instant::now() + crate::fake_control_plane::TIMEOUT;
        loop {
            if condition(&control.state.borrow()) {
                return;
            }
            if Self::has_ended(&mut self.agent.0) {
                self.crashes += 1;
                control.change(|plane| plane.report = None);
                self.agent = Agent::start(control, &[]);
            }
            let report = control.state.borrow().report.clone();
            assert!(
                tokio::time::Instant::now() < deadline,
                "not reached: {description}; {report:?}"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn run_case(case: &'static Case) {
    let Case { point, pass, .. } = case;
    let description = format!("{point:?} {pass}");
    let control = FakeControlPlane::start().await;
    let fault_point = format!("{}:{pass}", point.name());
    // A first agent creates the journal without a crash. An agent without a journal starts no entry
    // of its first desired set, because a previous agent may have started it.
    Agent::start(&control, &[]).terminate();
    let agent = Agent::start(&control, &[("FAULT_POINT", &fault_point)]);
    let mut agent = RestartingAgent { agent, crashes: 0 };
    let file = |name: &str| control.dir.path().join(name);
    let short_script = format!("echo x >> {}; echo words; exit 3", file("short").display());
    let long_script = format!("echo x >> {}; exec sleep 300", file("long").display());

    control.set_desired(desired_entry("short", shell(&short_script), 1000));
    let has_ended = |name: &'static str| {
        move |plane: &ControlPlaneState| plane.ends.contains_key(&(id(name), 1))
    };
    agent
        .wait_until(&control, &description, has_ended("short"))
        .await;
    control.change(|plane| {
        plane.desired.remove(id("short").as_str());
    });
    control.set_desired(desired_entry("long", shell(&long_script), 500));
    // After a crash of its supervisor, `long` has ended before it is stopped.
    let is_started = |plane: &ControlPlaneState| {
        find_report(plane, &id("long")).is_some_and(|report| {
            matches!(
                report.state,
                ContainerState::Running | ContainerState::Ended
            )
        })
    };
    agent.wait_until(&control, &description, is_started).await;
    control.set_goal(&id("long"), Goal::Stop);
    agent
        .wait_until(&control, &description, has_ended("long"))
        .await;
    control.change(|plane| plane.desired.clear());
    let is_empty = |plane: &ControlPlaneState| {
        plane
            .report
            .as_ref()
            .is_some_and(|report| report.containers.is_empty())
    };
    agent.wait_until(&control, &description, is_empty).await;

    assert_eq!(
        agent.crashes > 0,
        is_agent_point(*point),
        "{description}: only points of the agent crash the agent"
    );
    assert_one_outcome(&control, case, &description);
    remove_all_entries(&control).await;
}

/// Returns whether the point is in the agent. The points after `ForgetAfter` are in the supervisor.
fn is_agent_point(point: Point) -> bool {
    point as u32 <= Point::ForgetAfter as u32
}

/// Asserts that there is one start and one reported outcome, and that no process or file is left
/// (I3).
fn assert_one_outcome(control: &FakeControlPlane, case: &Case, description: &str) {
    let plane = control.state.borrow().clone();
    let starts = |name: &str| {
        std::fs::read_to_string(control.dir.path().join(name))
            .unwrap_or_default()
            .lines()
            .count()
    };
    for name in ["short", "long"] {
        assert!(starts(name) <= 1, "{description}: {name} was started twice");
        let reported = &plane.ends[&(id(name), 1)];
        assert!(
            reported.iter().all(|exit| *exit == reported[0]),
            "{description}: {reported:?}"
        );
    }
    let exit = &plane.ends[&(id("short"), 1)][0];
    let outcome = classify_exit(exit);
    assert!(case.allowed.contains(&outcome), "{description}: {exit:?}");
    if outcome == ProgramExit {
        assert_eq!(starts("short"), 1, "{description}");
    }
    let remaining = std::fs::read_dir(control.state_dir().join("containers")).unwrap();
    assert_eq!(
        remaining.count(),
        0,
        "{description}: a container directory is left"
    );
    assert!(
        !has_marked_process(control),
        "{description}: a process is left"
    );
}

fn classify_exit(exit: &Exit) -> Outcome {
    match (exit.cause, exit.code) {
        (ExitCause::UserError, Some(3)) => ProgramExit,
        (ExitCause::LaunchUnknown, None) => LaunchUnknown,
        (ExitCause::Node, None) => NodeFault,
        _ => panic!("{exit:?}"),
    }
}

/// Returns whether a process with a mark of this test's containers is alive.
fn has_marked_process(control: &FakeControlPlane) -> bool {
    let folder = control.state_dir().join("containers");
    let folder = folder.to_str().unwrap().as_bytes().to_vec();
    let own_pid = std::process::id();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own_pid).any(|pid| {
        ["cmdline", "environ"].iter().any(|file| {
            let content = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            content.windows(folder.len()).any(|part| part == folder)
        })
    })
}
