//! A simulated cluster: free space of each node, and placement of tasks.
//!
//! Invariant: a node never gives more than it has. Taking more than fits is a defect of the caller
//! and panics.

use crate::trace::{Job, Need, Node};

/// Properties of a node that do not depend on its load.
#[derive(Debug, Clone)]
pub struct Site {
    pub pool: String,
    pub gpu_model: String,
}

impl Site {
    pub fn accepts(&self, need: &Need) -> bool {
        let pool = need.pool.as_ref().is_none_or(|pool| *pool == self.pool);
        pool && (need.gpu_models.is_empty() || need.gpu_models.contains(&self.gpu_model))
    }
}

/// Free space of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeSpace {
    pub cpu_milli: u64,
    /// Free memory in MiB. `None` means unlimited.
    pub memory_mib: Option<u64>,
    /// Free thousandths of each GPU.
    pub gpus: Vec<u64>,
    /// Number of tasks that run on the node.
    pub tasks: u64,
    /// Whether a task runs on the node that needs it exclusively.
    pub closed: bool,
}

impl FreeSpace {
    fn new(node: &Node) -> Self {
        let gpus = usize::try_from(node.gpu_count).unwrap_or(0);
        Self {
            cpu_milli: node.cpu_milli,
            memory_mib: Some(node.memory_mib).filter(|memory| *memory > 0),
            gpus: vec![1000; gpus],
            tasks: 0,
            closed: false,
        }
    }

    /// Returns the number of tasks of this need that fit.
    pub fn fitting(&self, need: &Need) -> u64 {
        if self.closed || (need.exclusive && self.tasks > 0) {
            return 0;
        }
        let mut count = if need.exclusive { 1 } else { u64::MAX };
        if let Some(by_cpu) = self.cpu_milli.checked_div(need.cpu_milli) {
            count = count.min(by_cpu);
        }
        if let Some(memory) = self.memory_mib
            && let Some(by_memory) = memory.checked_div(need.memory_mib)
        {
            count = count.min(by_memory);
        }
        if need.gpu_milli > 0 {
            count = count.min(self.fitting_gpus(need));
        }
        count
    }

    fn fitting_gpus(&self, need: &Need) -> u64 {
        if need.gpu_milli < 1000 {
            return self.gpus.iter().map(|free| free / need.gpu_milli).sum();
        }
        let whole = self.gpus.iter().map(|free| free / 1000).sum::<u64>();
        whole / need.gpu_count
    }

    /// Takes space for tasks and returns the GPUs that they use. A share of a GPU goes to the
    /// tightest GPU that fits. Whole GPUs are taken from the lowest number up.
    pub fn take(&mut self, need: &Need, tasks: u64) -> Vec<usize> {
        let fitting = self.fitting(need);
        assert!(fitting >= tasks, "space is taken only where it is free");
        let mut gpus = Vec::new();
        if need.gpu_milli > 0 {
            let mut free = self.gpus.clone();
            for _ in 0..tasks * need.gpu_count {
                let at = tightest(&free, need.gpu_milli);
                free[at] -= need.gpu_milli;
                gpus.push(at);
            }
        }
        self.take_these(need, tasks, &gpus);
        gpus
    }

    /// Takes space for tasks on GPUs chosen by the caller.
    pub fn take_these(&mut self, need: &Need, tasks: u64, gpus: &[usize]) {
        self.cpu_milli -= need.cpu_milli * tasks;
        if let Some(memory) = &mut self.memory_mib {
            *memory -= need.memory_mib * tasks;
        }
        self.tasks += tasks;
        self.closed |= need.exclusive;
        for gpu in gpus {
            self.gpus[*gpu] -= need.gpu_milli;
        }
    }

    /// Returns the space that `take` took.
    pub fn give(&mut self, need: &Need, tasks: u64, gpus: &[usize]) {
        self.cpu_milli += need.cpu_milli * tasks;
        if let Some(memory) = &mut self.memory_mib {
            *memory += need.memory_mib * tasks;
        }
        self.tasks -= tasks;
        self.closed &= !need.exclusive;
        for gpu in gpus {
            self.gpus[*gpu] += need.gpu_milli;
        }
    }

    /// Returns the space that is free in both.
    #[must_use]
    pub fn both(&self, other: &Self) -> Self {
        let gpus = self.gpus.iter().zip(&other.gpus);
        let memory = match (self.memory_mib, other.memory_mib) {
            (Some(mine), Some(theirs)) => Some(mine.min(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
        Self {
            cpu_milli: self.cpu_milli.min(other.cpu_milli),
            memory_mib: memory,
            gpus: gpus.map(|(mine, theirs)| *mine.min(theirs)).collect(),
            tasks: self.tasks.max(other.tasks),
            closed: self.closed || other.closed,
        }
    }
}

/// Returns the GPU with the least free share that is enough, the lowest number among equals.
fn tightest(free: &[u64], milli: u64) -> usize {
    let fits = |(_, free): &(usize, &u64)| **free >= milli;
    let able = free.iter().enumerate().filter(fits);
    let best = able.min_by_key(|(at, free)| (**free, *at));
    best.map(|(at, _)| at)
        .expect("the fit was tested: a gpu is free")
}

/// Tasks of one job on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub node: usize,
    pub tasks: u64,
    pub gpus: Vec<usize>,
}

/// Nodes and their free space.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub sites: Vec<Site>,
    pub free_space: Vec<FreeSpace>,
    pub capacity: Capacity,
}

/// Sums over all nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    pub cpu_milli: u64,
    /// Memory in MiB. 0 if the memory of any node is unlimited.
    pub memory_mib: u64,
    pub gpu_milli: u64,
}

impl Cluster {
    pub fn new(nodes: &[Node]) -> Self {
        let unlimited = nodes.iter().any(|node| node.memory_mib == 0);
        let memory = nodes.iter().map(|node| node.memory_mib).sum();
        Self {
            sites: nodes
                .iter()
                .map(|node| Site {
                    pool: node.pool.clone(),
                    gpu_model: node.gpu_model.clone(),
                })
                .collect(),
            free_space: nodes.iter().map(FreeSpace::new).collect(),
            capacity: Capacity {
                cpu_milli: nodes.iter().map(|node| node.cpu_milli).sum(),
                memory_mib: if unlimited { 0 } else { memory },
                gpu_milli: nodes.iter().map(|node| node.gpu_count * 1000).sum(),
            },
        }
    }

    /// Returns the number of tasks of this need that fit on one node with this free space.
    pub fn fitting(&self, free_space: &[FreeSpace], node: usize, need: &Need) -> u64 {
        if self.sites[node].accepts(need) {
            free_space[node].fitting(need)
        } else {
            0
        }
    }

    /// Places all tasks of a job in this free space. Nodes with the least free CPU in `preferred`
    /// are filled first, ties in the order of the file. Returns `None` if not all tasks fit.
    pub fn lay(
        &self,
        job: &Job,
        free_space: &[FreeSpace],
        preferred: &[FreeSpace],
    ) -> Option<Vec<Part>> {
        let mut able: Vec<(u64, usize, u64)> = Vec::new();
        let mut found = 0_u64;
        for (node, space) in preferred.iter().enumerate() {
            let fitting = self.fitting(free_space, node, &job.need);
            if fitting > 0 {
                found = found.saturating_add(fitting);
                able.push((space.cpu_milli, node, fitting));
            }
        }
        if found < job.tasks {
            return None;
        }
        able.sort_unstable();
        let mut left = job.tasks;
        let mut parts = Vec::new();
        for (_, node, fitting) in able {
            let tasks = fitting.min(left);
            left -= tasks;
            parts.push(Part {
                node,
                tasks,
                gpus: Vec::new(),
            });
            if left == 0 {
                break;
            }
        }
        Some(parts)
    }

    /// Returns the number of tasks of this need that fit on the empty cluster.
    pub fn could_hold(&self, need: &Need) -> u64 {
        let fitting =
            (0..self.free_space.len()).map(|node| self.fitting(&self.free_space, node, need));
        fitting.fold(0, u64::saturating_add)
    }
}

/// A copy of the free space from which running work is removed step by step. It counts how many
/// tasks of one need would fit.
pub struct Emptying<'a> {
    cluster: &'a Cluster,
    need: &'a Need,
    pub free_space: Vec<FreeSpace>,
    each: Vec<u64>,
    fitting: u64,
}

impl<'a> Emptying<'a> {
    pub fn new(cluster: &'a Cluster, need: &'a Need) -> Self {
        let free_space = cluster.free_space.clone();
        let nodes = 0..free_space.len();
        let each: Vec<u64> = nodes
            .map(|node| cluster.fitting(&free_space, node, need))
            .collect();
        Self {
            cluster,
            need,
            fitting: each
                .iter()
                .fold(0, |sum: u64, more| sum.saturating_add(*more)),
            free_space,
            each,
        }
    }

    pub fn fits(&self, tasks: u64) -> bool {
        self.fitting >= tasks
    }

    pub fn remove(&mut self, need: &Need, parts: &[Part]) {
        release(&mut self.free_space, need, parts);
        self.count(parts);
    }

    /// Undoes a removal.
    pub fn put_back(&mut self, need: &Need, parts: &[Part]) {
        for part in parts {
            self.free_space[part.node].take_these(need, part.tasks, &part.gpus);
        }
        self.count(parts);
    }

    fn count(&mut self, parts: &[Part]) {
        for Part { node, .. } in parts {
            let now = self.cluster.fitting(&self.free_space, *node, self.need);
            self.fitting = self
                .fitting
                .saturating_sub(self.each[*node])
                .saturating_add(now);
            self.each[*node] = now;
        }
    }
}

/// Takes space for every part, and records its GPUs.
pub fn occupy(free_space: &mut [FreeSpace], need: &Need, parts: &mut [Part]) {
    for part in parts {
        part.gpus = free_space[part.node].take(need, part.tasks);
    }
}

pub fn release(free_space: &mut [FreeSpace], need: &Need, parts: &[Part]) {
    for part in parts {
        free_space[part.node].give(need, part.tasks, &part.gpus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(cpu: u64, gpus: u64) -> Node {
        Node {
            id: format!("{cpu}-{gpus}"),
            pool: "p".into(),
            cpu_milli: cpu,
            memory_mib: 100,
            gpu_count: gpus,
            gpu_model: "T4".into(),
        }
    }

    fn job(tasks: u64, need: Need) -> Job {
        Job {
            id: "j".into(),
            user: 0,
            class: 0,
            queue: None,
            submit_s: Some(0),
            runtime_s: Some(1),
            limit_s: None,
            tasks,
            need,
        }
    }

    #[test]
    fn the_fullest_nodes_are_filled_first() {
        let cluster = Cluster::new(&[node(4000, 0), node(2000, 0), node(2000, 0)]);
        let need = Need {
            cpu_milli: 1000,
            ..Need::default()
        };
        let parts = cluster.lay(
            &job(5, need.clone()),
            &cluster.free_space,
            &cluster.free_space,
        );
        let laid: Vec<(usize, u64)> = parts.unwrap().iter().map(|p| (p.node, p.tasks)).collect();
        assert_eq!(laid, [(1, 2), (2, 2), (0, 1)]);
        assert_eq!(
            cluster.lay(&job(9, need), &cluster.free_space, &cluster.free_space),
            None
        );
    }

    #[test]
    fn shares_use_the_tightest_gpu_and_are_returned() {
        let mut cluster = Cluster::new(&[node(9000, 2)]);
        let before = cluster.free_space.clone();
        let share = |milli| Need {
            gpu_count: 1,
            gpu_milli: milli,
            ..Need::default()
        };
        let space = &mut cluster.free_space[0];
        assert_eq!(space.fitting(&share(400)), 4);
        let first = space.take(&share(600), 1);
        assert_eq!((space.take(&share(400), 1), first), (vec![0], vec![0]));
        assert_eq!(space.fitting(&share(1000)), 1);
        let need = Need {
            gpu_count: 2,
            ..share(1000)
        };
        assert_eq!(space.fitting(&need), 0);
        space.give(&share(600), 1, &[0]);
        space.give(&share(400), 1, &[0]);
        assert_eq!(cluster.free_space, before);
    }

    #[test]
    fn an_exclusive_task_has_no_neighbours() {
        let mut cluster = Cluster::new(&[node(9000, 0)]);
        let alone = Need {
            cpu_milli: 1000,
            exclusive: true,
            ..Need::default()
        };
        let shared = Need {
            exclusive: false,
            ..alone.clone()
        };
        let space = &mut cluster.free_space[0];
        assert_eq!((space.fitting(&alone), space.fitting(&shared)), (1, 9));
        space.take(&alone, 1);
        assert_eq!((space.fitting(&alone), space.fitting(&shared)), (0, 0));
        space.give(&alone, 1, &[]);
        space.take(&shared, 1);
        assert_eq!((space.fitting(&alone), space.fitting(&shared)), (0, 8));
    }
}
