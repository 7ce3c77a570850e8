//! Benchmark of placement: `cargo run --release -p hayward-rm-scheduler-capacity --example
//! placement_benchmark`.
//!
//! The application protocol of Hayward was derived from another scheduler, whose throughput was
//! published (see `docs/benchmarks.md` and `docs/spec/application-protocol.md`). The published case
//! places 10,000 jobs of 10 bytes of memory and 1 vcore on empty nodes. The jobs belong to two
//! applications in two queues. Variants of the case have few jobs with many processes, many
//! applications, bin-packing, fair leaves, or 10,000 jobs that fit nowhere.
//!
//! Each row shows the CPU time of a whole round, including reading the snapshot and all verdicts.
//! Column `published` has the published placements per second, measured on other computers. The
//! last column is a naive best fit without queues. Each time of a round is the least of three.
//! The figures are printed and not asserted. `check` verifies the plans.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hayward_rm_scheduler_capacity::{Capacity, config};
use hayward_rm_scheduler_domain::snapshot::queues::Queued;
use hayward_rm_scheduler_domain::snapshot::{Demand, Node, Pool, Snapshot};
use hayward_rm_scheduler_domain::{Planner, check};
use hayward_vocabulary::{Quantum, Size, Timestamp, WorkKind};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde_json::json;

/// The allocator of the services.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESSES: u64 = 10_000;
const REPEATS: usize = 3;
/// Number of nodes, and published placements per second of the other scheduler.
const PUBLISHED: [(u64, f64); 2] = [(500, 12_600.0), (1_000, 7_500.0)];

struct BenchmarkCase {
    name: &'static str,
    applications: u64,
    /// Number of processes of each job.
    processes_per_job: u64,
    /// Number of jobs that fit on no node.
    unplaceable: u64,
    /// Order of the applications within a queue.
    application_sort: &'static str,
    /// Order in which nodes are tried.
    node_sort: &'static str,
}

const PLAIN: BenchmarkCase = BenchmarkCase {
    name: "2 x 5,000",
    applications: 2,
    processes_per_job: 1,
    unplaceable: 0,
    application_sort: "fifo",
    node_sort: "fair",
};

fn main() {
    println!(
        "shape                    nodes   placed        ms  placements/s  published   best fit/s"
    );
    let cases = [
        BenchmarkCase { ..PLAIN },
        BenchmarkCase {
            name: "2 x 5,000, two requests",
            processes_per_job: 5_000,
            ..PLAIN
        },
        BenchmarkCase {
            name: "2 x 5,000 bin-packing",
            node_sort: "binpacking",
            ..PLAIN
        },
        BenchmarkCase {
            name: "2 x 5,000 fair leaves",
            application_sort: "fair",
            ..PLAIN
        },
        BenchmarkCase {
            name: "10 x 1,000",
            applications: 10,
            ..PLAIN
        },
        BenchmarkCase {
            name: "100 x 100",
            applications: 100,
            ..PLAIN
        },
        BenchmarkCase {
            name: "1,000 x 10",
            applications: 1_000,
            ..PLAIN
        },
        BenchmarkCase {
            name: "10,000 unplaceable too",
            unplaceable: PROCESSES,
            ..PLAIN
        },
    ];
    for case in cases {
        for nodes in [500, 1_000, 10_000] {
            measure(&case, nodes);
        }
    }
}

fn measure(case: &BenchmarkCase, nodes: u64) {
    let snapshot = build_snapshot(case, nodes);
    let mut shortest = Duration::MAX;
    let mut placed = 0;
    for _ in 0..REPEATS {
        let (plan, duration) = measure_cpu_time(|| Capacity.schedule(&snapshot));
        shortest = shortest.min(duration);
        placed = plan.grants.len();
        assert!(check(&snapshot, &plan).is_ok(), "the check refuses a plan");
        let expected = usize::try_from(PROCESSES).unwrap_or(0);
        assert_eq!(placed, expected, "all that fits is placed");
    }
    let (naive_placed, naive_duration) = measure_cpu_time(|| naive_best_fit(&snapshot));
    assert_eq!(naive_placed, placed, "the naive best fit places as many");
    let published_rate = PUBLISHED
        .iter()
        .find(|(published_nodes, _)| *published_nodes == nodes);
    let processes = f64::from(u32::try_from(placed).unwrap_or(0));
    let rate = |duration: Duration| processes / duration.as_secs_f64();
    let published = published_rate.map_or("-".to_owned(), |(_, rate)| format!("{rate:.0}"));
    println!(
        "{:<23} {nodes:>6} {placed:>8} {:>9.2} {:>13.0} {published:>10} {:>12.0}",
        case.name,
        shortest.as_secs_f64() * 1_000.0,
        rate(shortest),
        rate(naive_duration),
    );
}

/// Returns the CPU time that this program has used.
fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a program may read its own usage");
    let micros = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
    Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
}

fn measure_cpu_time<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = cpu_time();
    let result = run();
    (result, cpu_time().saturating_sub(start))
}

fn build_snapshot(case: &BenchmarkCase, nodes: u64) -> Snapshot {
    let mut snapshot = Snapshot::empty();
    snapshot.now = Timestamp::from_unix_ms(1_000_000);
    snapshot.quantum = Quantum(Size::memory(1));
    snapshot.pools.insert("default".to_owned(), Pool::default());
    let queues = config::read(&json!({
        "queues": {"root": {"submit_acl": "*", "sort": case.application_sort,
            "queues": {"a": {}, "b": {}}}},
        "node_sort": {"policy": case.node_sort},
    }));
    let queues = queues.expect("a configuration without faults");
    snapshot.queues.insert("default".to_owned(), queues);
    // The nodes have space for all processes and about a tenth more.
    let per_node = (PROCESSES + PROCESSES / 10).div_ceil(nodes).max(1);
    for index in 0..nodes {
        let node = Node {
            pool: "default".to_owned(),
            capacity: size_of(per_node),
            takes_work: true,
            lost: false,
            offline: false,
            block: None,
            labels: BTreeMap::new(),
        };
        let name = format!("n{index:06}").parse().expect("letters and digits");
        snapshot.nodes.insert(name, node);
    }
    // These jobs are larger than any node, and are served before all others.
    for index in 0..case.unplaceable {
        let job = Job {
            id: format!("job_a{index:06}"),
            number: index,
            processes: 1,
            size: size_of(per_node + 1),
        };
        add_job(&mut snapshot, case, job);
    }
    for index in 0..PROCESSES / case.processes_per_job {
        let job = Job {
            id: format!("job_b{index:06}"),
            number: index,
            processes: case.processes_per_job,
            size: size_of(1),
        };
        add_job(&mut snapshot, case, job);
    }
    snapshot
}

fn size_of(units: u64) -> Size {
    Size {
        cpu_milli: 1_000 * units,
        ..Size::memory(10 * units)
    }
}

struct Job {
    id: String,
    /// Position in the order of submission.
    number: u64,
    processes: u64,
    size: Size,
}

fn add_job(snapshot: &mut Snapshot, case: &BenchmarkCase, job: Job) {
    let application = job.number % case.applications;
    let queue = if application.is_multiple_of(2) {
        "root.a"
    } else {
        "root.b"
    };
    let demand = Demand {
        kind: WorkKind::Job,
        user: "ann".parse().expect("letters"),
        class: None,
        submitted_at: Timestamp::from_unix_ms(i64::try_from(job.number).unwrap_or(0)),
        size: job.size,
        max_processes: job.processes,
        remaining_tasks: job.processes,
        threads: 1,
        task_ms: None,
        node_list: BTreeSet::new(),
        avoids: BTreeSet::new(),
        service: None,
        anti_affinity: None,
        managed: false,
        runnable: true,
        completing: false,
        keeps_what_it_holds: false,
        queued: Some(Box::new(Queued {
            queue: Some(queue.to_owned()),
            application: Some(format!("app-{application}")),
            ..Queued::default()
        })),
    };
    let id = job.id.parse().expect("letters and digits");
    snapshot.demand.insert(id, demand);
}

/// Places every process, the oldest work first, on the node with the least sufficient free memory.
/// Returns the number of placed processes.
fn naive_best_fit(snapshot: &Snapshot) -> usize {
    let nodes = snapshot.nodes.values().enumerate();
    let free_memory = nodes.map(|(index, node)| (node.capacity.memory_bytes, index));
    let mut free_memory: BTreeSet<(u64, usize)> = free_memory.collect();
    let mut demands: Vec<&Demand> = snapshot.demand.values().collect();
    demands.sort_by_key(|demand| demand.submitted_at);
    let mut placed = 0;
    for demand in demands {
        let needed = demand.size.memory_bytes;
        for _ in 0..demand.max_processes {
            let Some(&(free, index)) = free_memory.range((needed, 0)..).next() else {
                break;
            };
            free_memory.remove(&(free, index));
            free_memory.insert((free - needed, index));
            placed += 1;
        }
    }
    placed
}
