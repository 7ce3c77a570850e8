//! Telling container-manager what runs here: the whole list, at once when it changed and now and
//! then anyway. Changes during a report are told together in the next one.
//!
//! An end is told after the last of the container's output has arrived, or a little later: whoever
//! hears of it takes the order back, and then nobody asks for that output any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hayward_container_manager_api::{ContainerReport, ContainerState, Report, ReportAnswer};
use hayward_service::{Client, ClientError, Code, Shutdown};
use hayward_vocabulary::{AllocationId, NodeName};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::agent::Board;
use crate::backoff::Pause;
use crate::fault_points::{self, Point};
use crate::output::Drained;

/// A report that nobody asked for, in case one was lost on the other side.
const ANYWAY: Duration = Duration::from_secs(10);
const LAST: Duration = Duration::from_secs(2);
/// A launch is told on its own only when it takes longer than this: most have started by then, and
/// one report less for each start is one commit less for everybody who follows.
const LAUNCH: Duration = Duration::from_millis(25);
/// An end waits so long for its output: longer than the longest pause between two attempts to send
/// it.
const OUTPUT: Duration = Duration::from_secs(6);

pub struct Reporter {
    pub client: Client,
    pub node: NodeName,
    pub boot_id: String,
    pub agent_instance: String,
    pub board: watch::Receiver<Board>,
    pub drained: watch::Receiver<Drained>,
}

impl Reporter {
    /// `stop` comes after the last change of the board, so that the last report tells it.
    pub async fn run(mut self, stop: Shutdown) {
        let mut sequence = 0;
        tokio::select! {
            () = self.report_on(&mut sequence) => {}
            () = stop.wait() => {}
        }
        let board = self.board.borrow().clone();
        let mut drained = self.drained.clone();
        let all = |drained: &Drained| {
            let ended = |report: &&ContainerReport| report.state == ContainerState::Ended;
            let mut ended = board.containers.iter().filter(ended);
            ended.all(|report| drained.contains(&report.id))
        };
        let _ = timeout(LAST, drained.wait_for(all)).await;
        // Nobody may be there to hear it; the journal knows it too.
        let containers = board.containers.to_vec();
        let _ = timeout(LAST, self.send(&board, containers, sequence + 1)).await;
    }

    async fn report_on(&mut self, sequence: &mut u64) {
        let mut pause = Pause::default();
        let mut veil = Veil::default();
        let mut launching = BTreeSet::new();
        let mut foreign = BTreeSet::new();
        loop {
            let board = look(&mut self.board, &mut launching).await;
            let drained = self.drained.borrow_and_update().clone();
            let (mut containers, lift_at) = veil.over(&board.containers, &drained, Instant::now());
            containers.retain(|report| !foreign.contains(&report.id));
            *sequence += 1;
            fault_points::pass(Point::ReportBefore);
            match self.send(&board, containers.clone(), *sequence).await {
                Ok(_) => {
                    fault_points::pass(Point::ReportAfter);
                    pause.reset();
                    if !self.news(lift_at).await {
                        return;
                    }
                }
                Err(error) => {
                    foreign.extend(not_ours(&error, &containers));
                    if pause.is_new() {
                        tracing::warn!(%error, cause = ?error, "cannot report");
                    }
                    // Output had nowhere to go either.
                    veil.wait_anew(Instant::now());
                    pause.wait().await;
                }
            }
        }
    }

    /// Until there is something new to tell; false when nobody will tell anything any more.
    async fn news(&mut self, lift_at: Option<Instant>) -> bool {
        let lift = async {
            match lift_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.board.changed() => changed.is_ok(),
            changed = self.drained.changed(), if lift_at.is_some() => changed.is_ok(),
            () = lift => true,
            () = sleep(ANYWAY) => true,
        }
    }

    async fn send(
        &self,
        board: &Board,
        containers: Vec<ContainerReport>,
        sequence: u64,
    ) -> Result<ReportAnswer, ClientError> {
        let report = Report {
            boot_id: self.boot_id.clone(),
            agent_instance: self.agent_instance.clone(),
            sequence,
            cursor: board.cursor.clone(),
            complete: board.complete,
            containers,
        };
        self.client
            .put(&format!("/v1/nodes/{}/report", self.node), &report)
            .await
    }
}

/// What is left out from now on: it is here from a time when this machine was another node, and a
/// report that names it is refused as a whole (S14).
fn not_ours<'a>(
    error: &ClientError,
    told: &'a [ContainerReport],
) -> impl Iterator<Item = AllocationId> + 'a {
    let places = refused_items(error, "containers").into_iter();
    places.filter_map(|at| Some(told.get(at)?.id.clone()))
}

/// Which items of a list are not for this agent to speak of.
pub fn refused_items(error: &ClientError, list: &str) -> Vec<usize> {
    let problem = error.problem().filter(|it| it.code == Code::Forbidden);
    let faults = problem.into_iter().flat_map(|problem| &problem.errors);
    let places = faults.filter_map(|fault| {
        let place = fault.pointer.strip_prefix('/')?.strip_prefix(list)?;
        place.strip_prefix('/')?.strip_suffix("/id")?.parse().ok()
    });
    places.collect()
}

/// The board as it is to be told: what has just been told to start is given a moment to do so.
async fn look(board: &mut watch::Receiver<Board>, launching: &mut BTreeSet<AllocationId>) -> Board {
    let no_news = |board: &Board| launches(board).all(|id| launching.contains(id));
    let _ = timeout(LAUNCH, board.wait_for(no_news)).await;
    let board = board.borrow_and_update().clone();
    *launching = launches(&board).cloned().collect();
    board
}

/// What was told to start and has not said that it did.
fn launches(board: &Board) -> impl Iterator<Item = &AllocationId> {
    let containers = board.containers.iter();
    let launching = containers.filter(|it| it.state == ContainerState::Launching);
    launching.map(|it| &it.id)
}

/// Shows an end as what was before it until its output has arrived.
#[derive(Default)]
struct Veil {
    /// As they were before their end.
    before: BTreeMap<AllocationId, ContainerReport>,
    /// When an end is told whatever has become of its output.
    lift_at: BTreeMap<AllocationId, Instant>,
}

impl Veil {
    /// What to tell, and when there will be more to tell if nothing else happens.
    fn over(
        &mut self,
        containers: &[ContainerReport],
        drained: &Drained,
        now: Instant,
    ) -> (Vec<ContainerReport>, Option<Instant>) {
        let mut told = Vec::with_capacity(containers.len());
        let mut lift_at = BTreeMap::new();
        let mut before = BTreeMap::new();
        for report in containers {
            let id = &report.id;
            if report.state != ContainerState::Ended {
                before.insert(id.clone(), report.clone());
            } else if !drained.contains(id) {
                let at = *self.lift_at.get(id).unwrap_or(&(now + OUTPUT));
                lift_at.insert(id.clone(), at);
                if now < at {
                    let earlier = self.before.remove(id).unwrap_or_else(|| started(report));
                    told.push(earlier.clone());
                    before.insert(id.clone(), earlier);
                    continue;
                }
            }
            told.push(report.clone());
        }
        let next = lift_at.values().filter(|at| **at > now).min().copied();
        (self.before, self.lift_at) = (before, lift_at);
        (told, next)
    }

    /// What was told stays told.
    fn wait_anew(&mut self, now: Instant) {
        self.lift_at.retain(|_, at| *at <= now);
    }
}

/// A container that was never told of as anything but ended.
fn started(report: &ContainerReport) -> ContainerReport {
    let state = match report.started_at {
        Some(_) => ContainerState::Running,
        None => ContainerState::Launching,
    };
    ContainerReport {
        state,
        exit: None,
        ..report.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hayward_service::Problem;
    use hayward_vocabulary::{Exit, ExitCause};

    use super::*;

    fn report(name: &str, state: ContainerState) -> ContainerReport {
        let ended = state == ContainerState::Ended;
        ContainerReport {
            id: AllocationId::new(format!("alc_{name}")).unwrap(),
            incarnation: 1,
            state,
            pid: None,
            started_at: None,
            exit: ended.then(|| Exit::of(ExitCause::Success, "")),
            reason: None,
        }
    }

    #[test]
    fn what_is_not_ours_to_speak_of_is_left_out_and_nothing_else() {
        let told = ["a", "b"].map(|name| report(name, ContainerState::Running));
        let refused = |code, pointer: &str| {
            let problem = Problem::new(code, "no").at(pointer, "leave it out");
            not_ours(&ClientError::Problem(problem), &told).collect::<Vec<_>>()
        };
        let second = "/containers/1/id";
        assert_eq!(refused(Code::Forbidden, second), [told[1].id.clone()]);
        for (code, pointer) in [
            (Code::Forbidden, "/containers/2/id"),
            (Code::Forbidden, "/node"),
            (Code::Invalid, second),
        ] {
            assert!(refused(code, pointer).is_empty(), "{pointer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_launch_is_told_on_its_own_only_when_it_lasts() {
        use ContainerState::{Launching, Running};
        let shown = |all: &[ContainerReport]| Board {
            containers: Arc::new(all.to_vec()),
            ..Board::default()
        };
        let states = |board: &Board| {
            board
                .containers
                .iter()
                .map(|it| it.state)
                .collect::<Vec<_>>()
        };
        let (shows, mut board) = watch::channel(shown(&[report("a", Launching)]));
        let (mut told, begun) = (BTreeSet::new(), Instant::now());
        let runs = async {
            tokio::time::sleep(LAUNCH / 5).await;
            shows.send_replace(shown(&[report("a", Running)]));
        };
        let (seen, ()) = tokio::join!(look(&mut board, &mut told), runs);
        assert_eq!(states(&seen), [Running]);
        assert_eq!(begun.elapsed(), LAUNCH / 5);

        shows.send_replace(shown(&[report("a", Running), report("b", Launching)]));
        let seen = look(&mut board, &mut told).await;
        assert_eq!(states(&seen), [Running, Launching]);
        assert!(begun.elapsed() >= LAUNCH, "it had its moment");
        let then = Instant::now();
        look(&mut board, &mut told).await;
        assert_eq!(then.elapsed(), Duration::ZERO, "it was told before");
    }

    #[test]
    fn an_end_is_told_after_its_output_or_in_time() {
        use ContainerState::{Ended, Launching, Stopping};
        let mut veil = Veil::default();
        let now = Instant::now();
        let drained = |names: &[&str]| -> Drained {
            let ids = names
                .iter()
                .map(|name| AllocationId::new(format!("alc_{name}")).unwrap());
            Arc::new(ids.collect())
        };
        let states = |told: &[ContainerReport]| told.iter().map(|it| it.state).collect::<Vec<_>>();
        let first = [report("a", Stopping), report("b", Ended)];
        let (told, lift) = veil.over(&first, &drained(&[]), now);
        assert_eq!(
            states(&told),
            [Stopping, Launching],
            "nothing was told of b before"
        );
        assert_eq!(lift, Some(now + OUTPUT));
        let both = [report("a", Ended), report("b", Ended)];
        let (told, _) = veil.over(&both, &drained(&["b"]), now + OUTPUT / 2);
        assert_eq!(states(&told), [Stopping, Ended]);
        assert!(told[0].exit.is_none() && told[1].exit.is_some());
        let (told, lift) = veil.over(&both, &drained(&["b"]), now + OUTPUT * 2);
        assert_eq!((states(&told), lift), (vec![Ended, Ended], None), "bounded");
    }
}
