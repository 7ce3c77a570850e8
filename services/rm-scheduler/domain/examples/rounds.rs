//! What a round costs: `cargo run --profile dist -p hayward-rm-scheduler-domain --example rounds`,
//! with `NODESxREQUESTS` to choose a size (`10000x100000`).
//!
//! Fleets of one shape and growing size: the round that fills them; rounds after news of work to a
//! fleet at rest, each once more without news, which has to find the same again; rounds after news
//! of one node; one without news once the fleet has come to rest; and those after which one in a
//! hundred only goes on, comes or ends. After "1% news" one in a hundred pieces of work is not what
//! it was: half of these ended, with all they held, and half are new. After "replaced" one in a
//! hundred ended and as many are new.
//!
//! Beside them a naive best fit over the same requests in the same run. Times are of all processors
//! together, so that neighbours on the machine count little; beside them the time that passed, with
//! its least and most. Of rounds alike the one in the middle by that time is shown. What a first
//! round says of all work is put into words by whoever reads it, so that is timed by itself.
//! Figures are printed, never judged. What memory decides is compared with what is decided without.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use hayward_rm_scheduler_domain::snapshot::{
    Allocation, Class, Demand, Growth, Node, Policy, Pool, Snapshot,
};
use hayward_rm_scheduler_domain::{Decided, FairShare, News, Phase, Plan, Planner, Rounds, check};
use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId, WorkKind};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// As in the services.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const GIB: u64 = 1 << 30;
const USERS: u64 = 97;
/// One node in so many has gpus, and one piece of work in so many wants some; they have a pool of
/// their own.
const GPUS_ONE_IN: u64 = 50;
/// Rounds after which a fleet that still moves is measured as it is.
const UNTIL_REST: usize = 40;
/// First rounds that are tried; the largest fleet is planned once, for its memory.
const REPEATS: usize = 3;
/// Rounds with news that are tried, unless the environment says another number.
const NEWS: u64 = 9;
/// Rounds at rest that are tried.
const RESTS: usize = 5;

fn main() {
    let asked: Vec<(u64, u64)> = std::env::args()
        .skip(1)
        .filter_map(|it| size(&it))
        .collect();
    let sizes = if asked.is_empty() {
        vec![(1_000, 10_000), (10_000, 100_000), (100_000, 1_000_000)]
    } else {
        asked
    };
    for (nodes, requests) in sizes {
        measure(nodes, requests);
    }
}

fn size(text: &str) -> Option<(u64, u64)> {
    let (nodes, requests) = text.split_once('x')?;
    Some((nodes.parse().ok()?, requests.parse().ok()?))
}

/// What one round cost.
#[derive(Default, Clone)]
struct Cost {
    spent: Duration,
    passed: Duration,
    phases: BTreeMap<Phase, Duration>,
}

fn measure(nodes: u64, requests: u64) {
    println!("\n{nodes} nodes, {requests} requests");
    let mut full = fleet(nodes, requests);
    let first = first_rounds(&full);
    let peak = peak_bytes() >> 20;
    let (placed, naive) = timed(|| naive_best_fit(&full));
    assert!(placed > 0, "the yardstick placed nothing");
    let (checked, checking) = timed(|| check(&full, &first.middle().1));
    assert!(checked.is_ok(), "a plan the check refuses: {checked:?}");
    first.show("first", &naive);
    let plan = first.into_plan();
    println!("  best fit {:>9.2} ms for {placed}", ms(naive.spent));
    println!("  check    {:>9.2} ms, peak {peak} MiB", ms(checking.spent));
    let mut rounds = Rounds::default();
    rounds.decide(&full, &News::everything());
    let ((verdicts, shares), words) = timed(|| (rounds.verdicts(), rounds.shares()));
    println!(
        "  in words {:>9.2} ms, peak {} MiB",
        ms(words.spent),
        peak_bytes() >> 20
    );
    assert_eq!(verdicts.len(), full.demand.len(), "work without a verdict");
    drop((verdicts, shares));
    come_to_rest(&mut rounds, &mut full, plan);
    let mut born = requests;
    let replaced = [
        ("1% news", 200),
        ("replaced", 100),
        ("a 1,000", requests / 1_000),
    ];
    // Of 100,000 the first is a thousand already.
    for (name, among) in replaced
        .into_iter()
        .take(if requests > 100_000 { 3 } else { 2 })
    {
        let news = (name, Happens::Replaced, among, &mut born);
        news_rounds(&mut rounds, &mut full, news, &naive);
    }
    node_rounds(&mut rounds, &mut full, &naive);
    let mut rest = Several::default();
    for _ in 0..RESTS {
        rest.note(watched(&mut rounds, &full, &News::default()));
    }
    rest.show("at rest", &naive);
    // More comes than goes, so from here on somebody always waits.
    for (name, what) in [
        ("goes on", Happens::GoesOn),
        ("comes", Happens::Comes),
        ("ends", Happens::Ends),
    ] {
        news_rounds(&mut rounds, &mut full, (name, what, 100, &mut born), &naive);
    }
    println!("  peak {} MiB", peak_bytes() >> 20);
}

/// Carries out what was decided, and what is decided then, until nothing is or it was tried often.
fn come_to_rest(rounds: &mut Rounds, full: &mut Snapshot, mut plan: Plan) {
    for _ in 0..UNTIL_REST {
        let news = carry_out(full, &plan);
        plan = rounds.decide(full, &news).plan;
        if plan.is_empty() {
            break;
        }
    }
}

/// Rounds after news of one in so many to a fleet at rest, each with the same again.
fn news_rounds(
    rounds: &mut Rounds,
    full: &mut Snapshot,
    (name, what, among, born): (&str, Happens, u64, &mut u64),
    naive: &Cost,
) {
    let (mut fresh, mut again) = (Several::default(), Several::default());
    let turns = std::env::var("NEWS_ROUNDS").ok();
    let turns = turns.and_then(|turns| turns.parse().ok()).unwrap_or(NEWS);
    for turn in 0..turns {
        let news = change_some(full, what, (among, turn), born);
        let (after, cost) = watched(rounds, full, &news);
        if full.demand.len() <= 100_000 && turn == 0 {
            let same = rounds.whole(after.clone()) == FairShare.schedule(full);
            assert!(same, "memory changed a decision");
        }
        fresh.note((after, cost));
        let (same, cost) = watched(rounds, full, &News::default());
        let plan = same.plan.clone();
        again.note((same, cost));
        come_to_rest(rounds, full, plan);
    }
    fresh.show(name, naive);
    again.show("again", naive);
}

/// Rounds after news of nodes to a fleet at rest: one takes no more work and takes it again, one
/// goes and comes back.
fn node_rounds(rounds: &mut Rounds, full: &mut Snapshot, naive: &Cost) {
    let mut costs: BTreeMap<&str, Several> = BTreeMap::new();
    let names: Vec<NodeName> = full
        .nodes
        .keys()
        .skip(11)
        .step_by(97)
        .take(3)
        .cloned()
        .collect();
    for name in names {
        let node = full.nodes[&name].clone();
        let changes = [
            (
                "no work",
                Some(Node {
                    takes_work: false,
                    ..node.clone()
                }),
            ),
            ("work", Some(node.clone())),
            ("gone", None),
            ("back", Some(node)),
        ];
        for (what, node) in changes {
            match node {
                Some(node) => drop(full.nodes.insert(name.clone(), node)),
                None => drop(full.nodes.remove(&name)),
            }
            let news = News {
                nodes: BTreeSet::from([name.clone()]),
                ..News::default()
            };
            let (after, cost) = watched(rounds, full, &news);
            let plan = after.plan.clone();
            costs.entry(what).or_default().note((after, cost));
            come_to_rest(rounds, full, plan);
        }
    }
    for (what, cost) in costs {
        cost.show(what, naive);
    }
}

/// Rounds alike.
#[derive(Default)]
struct Several(Vec<(Cost, Plan)>);

impl Several {
    fn note(&mut self, (decided, cost): (Decided, Cost)) {
        let later = |known: &(Cost, Plan)| known.0.passed <= cost.passed;
        let place = self.0.partition_point(later);
        self.0.insert(place, (cost, decided.plan));
    }

    /// By the time that passed.
    fn middle(&self) -> &(Cost, Plan) {
        &self.0[self.0.len() / 2]
    }

    fn into_plan(mut self) -> Plan {
        self.0.swap_remove(self.0.len() / 2).1
    }

    fn show(&self, what: &str, naive: &Cost) {
        let (cost, plan) = self.middle();
        let (least, most) = (&self.0[0].0, &self.0[self.0.len() - 1].0);
        println!(
            "  {what:<8} {:>9.2} ms ({:.2} passed, {:.2} to {:.2}), {:.2} of best fit, {} grants, \
             {} leave",
            ms(cost.spent),
            ms(cost.passed),
            ms(least.passed),
            ms(most.passed),
            ms(cost.spent) / ms(naive.spent),
            plan.grants.len(),
            plan.vacates.len(),
        );
        let phases = cost.phases.iter();
        let phases: Vec<String> = phases
            .map(|(phase, time)| format!("{phase:?} {:.2}", ms(*time)).to_lowercase())
            .collect();
        println!("           {}", phases.join(", "));
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Time this program had a processor, on all its threads.
fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a program may ask about itself");
    let micros = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
    Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
}

fn timed<T>(run: impl FnOnce() -> T) -> (T, Cost) {
    let (clock, before) = (Instant::now(), processor_time());
    let done = run();
    let cost = Cost {
        spent: processor_time().saturating_sub(before),
        passed: clock.elapsed(),
        phases: BTreeMap::new(),
    };
    (done, cost)
}

/// The most memory this program ever held.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn watched(rounds: &mut Rounds, snapshot: &Snapshot, news: &News) -> (Decided, Cost) {
    let mut phases: BTreeMap<Phase, Duration> = BTreeMap::new();
    let mut last = processor_time();
    let (decided, cost) = timed(|| {
        rounds.decide_watched(snapshot, news, &mut |phase| {
            let now = processor_time();
            *phases.entry(phase).or_default() += now.saturating_sub(last);
            last = now;
        })
    });
    (decided, Cost { phases, ..cost })
}

fn first_rounds(snapshot: &Snapshot) -> Several {
    let mut rounds = Several::default();
    let repeats = if snapshot.demand.len() < 1_000_000 {
        REPEATS
    } else {
        1
    };
    for _ in 0..repeats {
        rounds.note(watched(
            &mut Rounds::default(),
            snapshot,
            &News::everything(),
        ));
    }
    rounds
}

fn name<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().expect("a name of letters and digits")
}

fn fleet(nodes: u64, requests: u64) -> Snapshot {
    let mut snapshot = Snapshot::empty();
    snapshot.tunables.initialization_cap = 0;
    for pool in ["default", "gpus"] {
        snapshot.pools.insert(pool.to_owned(), Pool::default());
    }
    let classes = [
        ("high", 200, "default"),
        ("normal", 100, "default"),
        ("low", 50, "default"),
        ("learning", 100, "gpus"),
    ];
    for (class, weight, pool) in classes {
        let entry = Class {
            policy: Policy::FairShare,
            priority: 10,
            weight,
            pool: pool.into(),
            default: false,
            users: BTreeSet::new(),
            place: 0,
            debug: None,
            growth: Growth::default(),
        };
        snapshot.classes.insert(class.to_owned(), entry);
    }
    for at in 0..nodes {
        let with_gpus = at % GPUS_ONE_IN == 0;
        let node = Node {
            pool: if with_gpus { "gpus" } else { "default" }.into(),
            capacity: Size {
                cpu_milli: 64_000,
                gpu_milli: if with_gpus { 8_000 } else { 0 },
                ..Size::memory([64, 96, 128, 48][usize::try_from(at % 4).unwrap_or(0)] * GIB)
            },
            takes_work: true,
            lost: false,
            offline: false,
            block: None,
            labels: BTreeMap::new(),
        };
        let key: NodeName = name(&format!("n{at:06}"));
        snapshot.nodes.insert(key, node);
    }
    for at in 0..requests {
        add_request(&mut snapshot, at);
    }
    snapshot
}

fn add_request(snapshot: &mut Snapshot, at: u64) -> WorkId {
    let pick = usize::try_from(at).unwrap_or(0);
    let learns = at % GPUS_ONE_IN == 7;
    let (class, gpu_milli) = if learns {
        let turn = pick / 50 % 4;
        ("learning", [500, 1_000, 2_000, 1_000][turn])
    } else {
        (["high", "normal", "normal", "low"][pick % 4], 0)
    };
    let demand = Demand {
        kind: WorkKind::Job,
        user: name::<UserName>(&format!("u{}", at % USERS)),
        class: Some(class.to_owned()),
        submitted_at: Timestamp::from_unix_ms(i64::try_from(at).unwrap_or(0)),
        size: Size {
            cpu_milli: 500,
            gpu_milli,
            ..Size::memory([1, 2, 4, 8, 3][pick % 5] * GIB)
        },
        max_processes: 1 + at % 4,
        remaining_tasks: 1_000,
        threads: 1,
        task_ms: Some(1_000),
        machines: BTreeSet::new(),
        avoids: BTreeSet::new(),
        service: None,
        apart: None,
        managed: false,
        runnable: true,
        completing: false,
        keeps_what_it_holds: false,
        queued: None,
    };
    let id = name::<WorkId>(&format!("job_{at:07}"));
    snapshot.demand.insert(id.clone(), demand);
    id
}

fn carry_out(snapshot: &mut Snapshot, plan: &Plan) -> News {
    let mut news = News::default();
    for vacate in &plan.vacates {
        snapshot.allocations.remove(&vacate.allocation);
        news.allocations.insert(vacate.allocation.clone(), None);
    }
    let born = snapshot.round * 10_000_000;
    for (at, grant) in (born..).zip(&plan.grants) {
        let allocation = Allocation {
            running: true,
            running_since: Some(snapshot.now),
            ..grant.taken_up(snapshot.now)
        };
        let id: AllocationId = name(&format!("alc_{at:012}"));
        news.allocations
            .insert(id.clone(), Some(allocation.clone()));
        snapshot.allocations.insert(id, allocation);
    }
    snapshot.carried = plan.carried.clone();
    snapshot.round += 1;
    snapshot.now = snapshot.now.plus_ms(1_000);
    news
}

/// What happens to one piece of work in so many, others in each turn.
#[derive(Debug, Clone, Copy)]
enum Happens {
    /// It ends, with all it holds, and as much other work comes.
    Replaced,
    Ends,
    /// As much other work comes, and nothing ends.
    Comes,
    /// It has less to do than before.
    GoesOn,
}

/// `born` numbers those that come.
fn change_some(
    full: &mut Snapshot,
    what: Happens,
    (among, turn): (u64, u64),
    born: &mut u64,
) -> News {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let some = full.demand.keys().skip(number(turn)).step_by(number(among));
    let some: Vec<WorkId> = some.cloned().collect();
    let mut news = News::default();
    if matches!(what, Happens::Replaced | Happens::Comes) {
        for _ in &some {
            let id = add_request(full, *born);
            let said = full.demand.get(&id).cloned();
            news.work.insert(id, said);
            *born += 1;
        }
    }
    match what {
        Happens::Comes => return news,
        Happens::GoesOn => {
            for work in &some {
                let demand = full.demand.get_mut(work).expect("it is there");
                demand.remaining_tasks -= 1;
                news.work.insert(work.clone(), Some(demand.clone()));
            }
        }
        Happens::Ends | Happens::Replaced => {
            for work in &some {
                full.demand.remove(work);
                news.work.insert(work.clone(), None);
            }
            full.allocations.retain(|id, it| {
                let stays = full.demand.contains_key(&it.work);
                if !stays {
                    news.allocations.insert(id.clone(), None);
                }
                stays
            });
        }
    }
    news
}

/// Every request in order of age into the smallest hole that fits, memory alone, no shares.
fn naive_best_fit(snapshot: &Snapshot) -> u64 {
    let mut holes: BTreeSet<(u64, usize)> = snapshot
        .nodes
        .values()
        .enumerate()
        .map(|(at, node)| (node.capacity.memory_bytes / GIB, at))
        .collect();
    let mut requests: Vec<&Demand> = snapshot.demand.values().collect();
    requests.sort_by_key(|demand| demand.submitted_at);
    let mut placed = 0;
    for demand in requests {
        let order = demand.size.memory_bytes.div_ceil(GIB);
        for _ in 0..demand.max_processes {
            let Some(&(free, at)) = holes.range((order, 0)..).next() else {
                break;
            };
            holes.remove(&(free, at));
            holes.insert((free - order, at));
            placed += 1;
        }
    }
    placed
}
