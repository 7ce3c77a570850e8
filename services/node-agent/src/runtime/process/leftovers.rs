//! What is left of a container without a supervisor, or without its folder: it is found by more
//! than a number, ended, and not called ended before it is gone (R10, I17, F31).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hayward_node_agent_domain::Trace;
use hayward_vocabulary::{AllocationId, Exit, ExitCause};
use rustix::process::Signal;

use super::{Event, Found, Processes};
use crate::files;
use crate::machine::{self, Identity};
use crate::orphan_processes::{self, Stray};
use crate::supervisor::{EXIT, STARTED, Started, reason};

/// Looks for what is being ended: those killed first may have had children.
const PASSES: u32 = 100;
/// What is killed is gone after some of these; recovery does not wait for more.
const BLINK: Duration = Duration::from_millis(5);
const BLINKS: u32 = 60;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Until somebody is told that killing does not help.
const PATIENCE: Duration = Duration::from_secs(2);
/// On top of the grace: a supervisor that has not obeyed by then will not.
const MARGIN: Duration = Duration::from_secs(10);
/// For an orphaned supervisor to end what it has, whose grace nobody knows any more.
const ORPHAN_GRACE: Duration = Duration::from_secs(10);

impl Processes {
    fn containers(&self) -> PathBuf {
        self.0.conditions.state_dir.join("containers")
    }

    /// Everything alive of a container: members of its control groups, of the process group whose
    /// leader is known by more than its number, and whoever carries its mark.
    fn remains(&self, id: &AllocationId, dir: &Path) -> Vec<Identity> {
        let groups = &self.0.conditions.groups;
        let grouped = groups.members(id).into_iter().filter_map(|pid| {
            let process = Identity::of(pid)?;
            // Looked at again once it is identified: the number may have moved on in between.
            groups.members(id).contains(&pid).then_some(process)
        });
        let leader = files::read_json::<Started>(&dir.join(STARTED)).map(|it| it.program);
        let led = leader
            .into_iter()
            .filter(Identity::lives)
            .flat_map(|leader| {
                let members = machine::group_of(&leader);
                std::iter::once(leader).chain(members)
            });
        let strays = orphan_processes::all(&self.containers()).into_iter();
        let marked = strays.filter(|stray| stray.id == *id).map(|it| it.process);
        let all = grouped.chain(led).chain(marked);
        let all = all.filter(|process| process.pid != std::process::id() && process.lives());
        let by_number: BTreeMap<u32, Identity> = all.map(|it| (it.pid, it)).collect();
        by_number.into_values().collect()
    }

    /// Kills what is left; what is there afterwards.
    fn kill_remains(&self, id: &AllocationId, dir: &Path) -> Vec<Identity> {
        if let Some(started) = files::read_json::<Started>(&dir.join(STARTED)) {
            end_group(&started.program);
        }
        for process in self.remains(id, dir) {
            process.signal(Signal::KILL);
        }
        self.remains(id, dir)
    }

    /// At once, for an agent that begins. False when something of it is still alive.
    pub(super) fn end_remains(&self, id: &AllocationId, dir: &Path) -> bool {
        let mut left = self.kill_remains(id, dir);
        for _ in 0..BLINKS {
            left.retain(Identity::lives);
            if left.is_empty() {
                // Looked at once more: what was forked meanwhile is not in that list.
                left = self.kill_remains(id, dir);
                if left.is_empty() {
                    return true;
                }
            }
            std::thread::sleep(BLINK);
        }
        false
    }

    /// Until nothing of it is alive, ever slower, and saying so when it takes long.
    pub(super) async fn outlast(&self, id: &AllocationId, incarnation: u64, dir: &Path) {
        let (mut pause, mut waited, mut told) = (FIRST_PAUSE, Duration::ZERO, false);
        loop {
            let (runtime, of, at) = (self.clone(), id.clone(), dir.to_owned());
            let kill = move || runtime.kill_remains(&of, &at);
            let left = tokio::task::spawn_blocking(kill).await.unwrap_or_default();
            if left.is_empty() {
                return;
            }
            if waited >= PATIENCE && !told {
                told = true;
                let names: Vec<String> = left
                    .iter()
                    .filter_map(|process| machine::described(process.pid))
                    .collect();
                self.say(id, incarnation, Event::Stuck(reason(&names)))
                    .await;
            }
            tokio::time::sleep(pause).await;
            waited += pause;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Ends in the background what was found without a supervisor, and says how that went.
    pub(super) fn outlive(&self, id: AllocationId, incarnation: u64, dir: PathBuf) {
        let runtime = self.clone();
        tokio::spawn(async move {
            runtime.conclude((&id, incarnation), &dir, None).await;
        });
    }

    /// A supervisor that does not obey is killed, unless it is at work on what cannot be killed
    /// (F31); then what it had is ended without it.
    pub(super) fn insist(&self, id: AllocationId, grace: Duration) {
        let runtime = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(grace + MARGIN).await;
            let live = runtime.0.live.lock().get(&id).and_then(|it| it.stop_asked);
            // Another one may have its name by now.
            if live.is_none_or(|asked| asked.elapsed() < grace + MARGIN) {
                return;
            }
            let dir = runtime.dir(&id);
            let working = dir.join(crate::supervisor::STUCK).exists() || dir.join(EXIT).exists();
            if !working && runtime.dismiss(&id) {
                tracing::warn!(container = %id, "its supervisor did not obey and was killed");
            }
        });
    }

    /// What is alive of containers that have no folder: an agent that was here before, whose memory
    /// is lost, started them. They are ended, and their orders are not obeyed a second time.
    pub(super) fn end_orphans(&self, found: &mut BTreeMap<AllocationId, Found>) {
        let containers = self.containers();
        let strays = orphan_processes::all(&containers);
        let without = |id: &AllocationId| !containers.join(id.as_str()).exists();
        let mut orphans: BTreeMap<AllocationId, Vec<Stray>> = BTreeMap::new();
        for stray in strays.into_iter().filter(|stray| without(&stray.id)) {
            orphans.entry(stray.id.clone()).or_default().push(stray);
        }
        for (id, strays) in orphans {
            let incarnation = strays.iter().map(|it| it.incarnation).max().unwrap_or(0);
            tracing::warn!(container = %id, processes = strays.len(), "an orphan is ended");
            let pid = strays.iter().find(|it| !it.supervisor);
            let orphan = Found {
                incarnation,
                epoch: 0,
                boot_id: Some(self.0.conditions.boot_id.clone()),
                pid: pid.map(|stray| stray.process.pid),
                started_at: None,
                trace: Trace::Orphan,
            };
            found.insert(id.clone(), orphan);
            self.end_orphan(id, incarnation, strays);
        }
        // Whoever is in a group of ours without a mark: only the group says whose it is.
        let known: BTreeSet<_> = found.keys().cloned().collect();
        let groups = self.0.conditions.groups.containers();
        for id in groups.into_iter().filter(|id| !known.contains(id)) {
            let dir = self.dir(&id);
            if !self.end_remains(&id, &dir) {
                tracing::error!(container = %id, "an orphan in its control group does not end");
            }
            self.0.conditions.groups.remove(&id);
        }
    }

    /// Supervisors first and gently: they end what they have.
    fn end_orphan(&self, id: AllocationId, incarnation: u64, strays: Vec<Stray>) {
        let runtime = self.clone();
        tokio::spawn(async move {
            let supervisors: Vec<_> = strays.iter().filter(|it| it.supervisor).collect();
            for stray in &supervisors {
                stray.process.signal(Signal::TERM);
            }
            let mut waited = Duration::ZERO;
            while waited < ORPHAN_GRACE && supervisors.iter().any(|it| it.process.lives()) {
                tokio::time::sleep(FIRST_PAUSE).await;
                waited += FIRST_PAUSE;
            }
            let dir = runtime.dir(&id);
            runtime.outlast(&id, incarnation, &dir).await;
            let why = "its folder was lost while it ran, and it was ended";
            let exit = Exit::of(ExitCause::Node, why);
            runtime.say(&id, incarnation, Event::Ended(exit)).await;
        });
    }
}

/// Ends a process group, its leader last: while it is there, its number names this group and no
/// other, and while it is stopped, it adds nobody.
fn end_group(leader: &Identity) {
    if !leader.signal(Signal::STOP) {
        return;
    }
    for _ in 0..PASSES {
        let members = machine::group_of(leader);
        if members.is_empty() {
            break;
        }
        for member in members {
            member.signal(Signal::KILL);
        }
    }
    leader.signal(Signal::KILL);
}
