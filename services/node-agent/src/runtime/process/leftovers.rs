//! Ends the processes that are left of a container whose supervisor or folder was lost. They are
//! found by cgroup, process group and mark, because a process id alone may have been reused. The
//! container counts as ended only when all its processes have ended (I17).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hayward_node_agent_domain::Evidence;
use hayward_vocabulary::{AllocationId, Exit, ExitCause};
use rustix::process::Signal;

use super::{Event, FoundContainer, Processes};
use crate::atomic_files;
use crate::container_processes::{self, ContainerProcess};
use crate::process_identity::{self, ProcessIdentity};
use crate::supervisor::{EXIT, STARTED, Started, stuck_reason};

/// Maximum number of passes over the members of a process group. Several passes are needed, because
/// killed processes may have forked before.
const MAX_PASSES: u32 = 100;
/// Interval of polls after a kill, when the agent starts.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of polls, so that the start of the agent is not delayed for longer.
const MAX_POLLS: u32 = 60;
/// First and longest pause between two kills of the same processes.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Time after which processes count as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(2);
/// Time added to the grace before a supervisor is killed.
const KILL_MARGIN: Duration = Duration::from_secs(10);
/// Grace of an orphaned supervisor, whose own grace is unknown.
const ORPHAN_GRACE: Duration = Duration::from_secs(10);

impl Processes {
    fn containers_dir(&self) -> PathBuf {
        self.0.settings.state_dir.join("containers")
    }

    /// Returns all live processes of a container: members of its cgroups and process group, and
    /// processes with its mark.
    fn leftovers(&self, id: &AllocationId, dir: &Path) -> Vec<ProcessIdentity> {
        let groups = &self.0.settings.groups;
        let cgroup_processes = groups.members(id).into_iter().filter_map(|pid| {
            let process = ProcessIdentity::from_pid(pid)?;
            // Membership is checked again after identification, because the process id may have
            // been reused.
            groups.members(id).contains(&pid).then_some(process)
        });
        let leader =
            atomic_files::read_json::<Started>(&dir.join(STARTED)).map(|started| started.program);
        let group_processes = leader
            .into_iter()
            .filter(ProcessIdentity::is_alive)
            .flat_map(|leader| {
                let members = process_identity::group_members(&leader);
                std::iter::once(leader).chain(members)
            });
        let orphans = container_processes::find_all(&self.containers_dir()).into_iter();
        let marked_processes = orphans
            .filter(|orphan| orphan.id == *id)
            .map(|orphan| orphan.process);
        let processes = cgroup_processes
            .chain(group_processes)
            .chain(marked_processes);
        let processes =
            processes.filter(|process| process.pid != std::process::id() && process.is_alive());
        let by_pid: BTreeMap<u32, ProcessIdentity> =
            processes.map(|process| (process.pid, process)).collect();
        by_pid.into_values().collect()
    }

    /// Kills all leftovers. Returns those that are still alive.
    fn kill_leftovers(&self, id: &AllocationId, dir: &Path) -> Vec<ProcessIdentity> {
        if let Some(started) = atomic_files::read_json::<Started>(&dir.join(STARTED)) {
            end_group(&started.program);
        }
        for process in self.leftovers(id, dir) {
            process.signal(Signal::KILL);
        }
        self.leftovers(id, dir)
    }

    /// Ends all leftovers at the start of the agent. Returns false if processes are still alive.
    pub(super) fn end_leftovers(&self, id: &AllocationId, dir: &Path) -> bool {
        let mut remaining = self.kill_leftovers(id, dir);
        for _ in 0..MAX_POLLS {
            remaining.retain(ProcessIdentity::is_alive);
            if remaining.is_empty() {
                // Processes may have forked meanwhile, so the leftovers are killed once more.
                remaining = self.kill_leftovers(id, dir);
                if remaining.is_empty() {
                    return true;
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        false
    }

    /// Kills the processes of a container with backoff, until all have ended. Reports the container
    /// as stuck if that takes long.
    pub(super) async fn wait_until_gone(&self, id: &AllocationId, incarnation: u64, dir: &Path) {
        let (mut pause, mut waited, mut reported) = (FIRST_PAUSE, Duration::ZERO, false);
        loop {
            let (runtime, container, container_dir) = (self.clone(), id.clone(), dir.to_owned());
            let kill = move || runtime.kill_leftovers(&container, &container_dir);
            let remaining = tokio::task::spawn_blocking(kill).await.unwrap_or_default();
            if remaining.is_empty() {
                return;
            }
            if waited >= STUCK_AFTER && !reported {
                reported = true;
                let names: Vec<String> = remaining
                    .iter()
                    .filter_map(|process| process_identity::describe(process.pid))
                    .collect();
                self.send_event(id, incarnation, Event::Stuck(stuck_reason(&names)))
                    .await;
            }
            tokio::time::sleep(pause).await;
            waited += pause;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Ends a container without a supervisor in the background, and reports its end.
    pub(super) fn finish_in_background(&self, id: AllocationId, incarnation: u64, dir: PathBuf) {
        let runtime = self.clone();
        tokio::spawn(async move {
            runtime.finish(&id, incarnation, &dir, None).await;
        });
    }

    /// Kills a supervisor that does not stop in time, unless the supervisor itself retries a kill
    /// (F31).
    pub(super) fn kill_if_stuck(&self, id: AllocationId, grace: Duration) {
        let runtime = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(grace + KILL_MARGIN).await;
            let stop_requested = runtime
                .0
                .live
                .lock()
                .get(&id)
                .and_then(|entry| entry.stop_requested);
            // A new container may have the same id.
            if stop_requested
                .is_none_or(|requested_at| requested_at.elapsed() < grace + KILL_MARGIN)
            {
                return;
            }
            let dir = runtime.container_dir(&id);
            let is_retrying_or_ended =
                dir.join(crate::supervisor::STUCK).exists() || dir.join(EXIT).exists();
            if !is_retrying_or_ended && runtime.kill_supervisor(&id) {
                tracing::warn!(container = %id, "its supervisor did not stop in time and was \
                    killed");
            }
        });
    }

    /// Ends live processes of containers without a folder, and adds these containers to `found`. A
    /// previous agent started them, so their orders are not obeyed again.
    pub(super) fn end_orphans(&self, found: &mut BTreeMap<AllocationId, FoundContainer>) {
        let containers_dir = self.containers_dir();
        let processes = container_processes::find_all(&containers_dir);
        let has_no_folder = |id: &AllocationId| !containers_dir.join(id.as_str()).exists();
        let mut orphans: BTreeMap<AllocationId, Vec<ContainerProcess>> = BTreeMap::new();
        for orphan in processes
            .into_iter()
            .filter(|orphan| has_no_folder(&orphan.id))
        {
            orphans.entry(orphan.id.clone()).or_default().push(orphan);
        }
        for (id, orphans) in orphans {
            let incarnation = orphans
                .iter()
                .map(|orphan| orphan.incarnation)
                .max()
                .unwrap_or(0);
            tracing::warn!(container = %id, processes = orphans.len(), "an orphan is ended");
            let program = orphans.iter().find(|orphan| !orphan.is_supervisor);
            let orphan = FoundContainer {
                incarnation,
                epoch: 0,
                boot_id: Some(self.0.settings.boot_id.clone()),
                pid: program.map(|orphan| orphan.process.pid),
                started_at: None,
                evidence: Evidence::Orphan,
            };
            found.insert(id.clone(), orphan);
            self.end_orphan(id, incarnation, orphans);
        }
        // Processes in our cgroups that have no mark are ended too.
        let known: BTreeSet<_> = found.keys().cloned().collect();
        let groups = self.0.settings.groups.containers();
        for id in groups.into_iter().filter(|id| !known.contains(id)) {
            let dir = self.container_dir(&id);
            if !self.end_leftovers(&id, &dir) {
                tracing::error!(container = %id, "an orphan in its cgroup does not end");
            }
            self.0.settings.groups.remove(&id);
        }
    }

    /// Ends an orphaned container in the background. Supervisors are asked first, because each of
    /// them ends its own processes.
    fn end_orphan(&self, id: AllocationId, incarnation: u64, orphans: Vec<ContainerProcess>) {
        let runtime = self.clone();
        tokio::spawn(async move {
            let supervisors: Vec<_> = orphans
                .iter()
                .filter(|orphan| orphan.is_supervisor)
                .collect();
            for orphan in &supervisors {
                orphan.process.signal(Signal::TERM);
            }
            let mut waited = Duration::ZERO;
            while waited < ORPHAN_GRACE
                && supervisors.iter().any(|orphan| orphan.process.is_alive())
            {
                tokio::time::sleep(FIRST_PAUSE).await;
                waited += FIRST_PAUSE;
            }
            let dir = runtime.container_dir(&id);
            runtime.wait_until_gone(&id, incarnation, &dir).await;
            let message = "its folder was lost while it ran, and it was ended";
            let exit = Exit::of(ExitCause::Node, message);
            runtime
                .send_event(&id, incarnation, Event::Ended(exit))
                .await;
        });
    }
}

/// Kills a process group, its stopped leader last. The group id cannot be reused while the leader
/// exists.
fn end_group(leader: &ProcessIdentity) {
    if !leader.signal(Signal::STOP) {
        return;
    }
    for _ in 0..MAX_PASSES {
        let members = process_identity::group_members(leader);
        if members.is_empty() {
            break;
        }
        for member in members {
            member.signal(Signal::KILL);
        }
    }
    leader.signal(Signal::KILL);
}
