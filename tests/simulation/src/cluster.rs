//! A simulated cluster: free space of each node, and placement of tasks.
//!
//! Invariant: a node never gives more than it has. Taking more than fits is a defect of the caller
//! and panics.

use crate::trace::{Job, Node, TaskRequest};

/// Properties of a node that do not depend on its load.
#[derive(Debug, Clone)]
pub struct NodeProperties {
    pub pool: String,
    pub gpu_model: String,
}

impl NodeProperties {
    pub fn accepts(&self, request: &TaskRequest) -> bool {
        let is_pool_accepted = request.pool.as_ref().is_none_or(|pool| *pool == self.pool);
        is_pool_accepted
            && (request.gpu_models.is_empty() || request.gpu_models.contains(&self.gpu_model))
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
    pub is_exclusive: bool,
}

impl FreeSpace {
    fn new(node: &Node) -> Self {
        let gpus = usize::try_from(node.gpu_count).unwrap_or(0);
        Self {
            cpu_milli: node.cpu_milli,
            memory_mib: Some(node.memory_mib).filter(|memory| *memory > 0),
            gpus: vec![1000; gpus],
            tasks: 0,
            is_exclusive: false,
        }
    }

    /// Returns the number of tasks of this request that fit.
    pub fn count_fitting(&self, request: &TaskRequest) -> u64 {
        if self.is_exclusive || (request.exclusive && self.tasks > 0) {
            return 0;
        }
        let mut count = if request.exclusive { 1 } else { u64::MAX };
        if let Some(by_cpu) = self.cpu_milli.checked_div(request.cpu_milli) {
            count = count.min(by_cpu);
        }
        if let Some(memory) = self.memory_mib
            && let Some(by_memory) = memory.checked_div(request.memory_mib)
        {
            count = count.min(by_memory);
        }
        if request.gpu_milli > 0 {
            count = count.min(self.count_fitting_gpus(request));
        }
        count
    }

    fn count_fitting_gpus(&self, request: &TaskRequest) -> u64 {
        if request.gpu_milli < 1000 {
            return self.gpus.iter().map(|free| free / request.gpu_milli).sum();
        }
        let whole_gpus = self.gpus.iter().map(|free| free / 1000).sum::<u64>();
        whole_gpus / request.gpu_count
    }

    /// Takes space for tasks and returns the GPUs that they use. A share of a GPU goes to the
    /// tightest GPU that fits. Whole GPUs are taken from the lowest number up.
    pub fn allocate(&mut self, request: &TaskRequest, tasks: u64) -> Vec<usize> {
        let fitting = self.count_fitting(request);
        assert!(fitting >= tasks, "tasks are allocated only where they fit");
        let mut gpus = Vec::new();
        if request.gpu_milli > 0 {
            let mut free = self.gpus.clone();
            for _ in 0..tasks * request.gpu_count {
                let gpu = find_tightest_gpu(&free, request.gpu_milli);
                free[gpu] -= request.gpu_milli;
                gpus.push(gpu);
            }
        }
        self.allocate_on(request, tasks, &gpus);
        gpus
    }

    /// Takes space for tasks on GPUs chosen by the caller.
    pub fn allocate_on(&mut self, request: &TaskRequest, tasks: u64, gpus: &[usize]) {
        self.cpu_milli -= request.cpu_milli * tasks;
        if let Some(memory) = &mut self.memory_mib {
            *memory -= request.memory_mib * tasks;
        }
        self.tasks += tasks;
        self.is_exclusive |= request.exclusive;
        for gpu in gpus {
            self.gpus[*gpu] -= request.gpu_milli;
        }
    }

    /// Frees the space that `allocate` took.
    pub fn release(&mut self, request: &TaskRequest, tasks: u64, gpus: &[usize]) {
        self.cpu_milli += request.cpu_milli * tasks;
        if let Some(memory) = &mut self.memory_mib {
            *memory += request.memory_mib * tasks;
        }
        self.tasks -= tasks;
        self.is_exclusive &= !request.exclusive;
        for gpu in gpus {
            self.gpus[*gpu] += request.gpu_milli;
        }
    }

    /// Returns the space that is free in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let gpus = self.gpus.iter().zip(&other.gpus);
        let memory = match (self.memory_mib, other.memory_mib) {
            (Some(own), Some(others)) => Some(own.min(others)),
            (own, others) => own.or(others),
        };
        Self {
            cpu_milli: self.cpu_milli.min(other.cpu_milli),
            memory_mib: memory,
            gpus: gpus.map(|(own, others)| *own.min(others)).collect(),
            tasks: self.tasks.max(other.tasks),
            is_exclusive: self.is_exclusive || other.is_exclusive,
        }
    }
}

/// Returns the GPU with the least free share that is enough, the lowest number among equals.
fn find_tightest_gpu(free: &[u64], gpu_milli: u64) -> usize {
    let fits = |(_, free): &(usize, &u64)| **free >= gpu_milli;
    let candidates = free.iter().enumerate().filter(fits);
    let best = candidates.min_by_key(|(gpu, free)| (**free, *gpu));
    best.map(|(gpu, _)| gpu)
        .expect("the fit was tested: a gpu is free")
}

/// Tasks of one job on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    pub node: usize,
    pub tasks: u64,
    pub gpus: Vec<usize>,
}

/// Nodes and their free space.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub properties: Vec<NodeProperties>,
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
            properties: nodes
                .iter()
                .map(|node| NodeProperties {
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

    /// Returns the number of tasks of this request that fit on one node with this free space.
    pub fn count_fitting(
        &self,
        free_space: &[FreeSpace],
        node: usize,
        request: &TaskRequest,
    ) -> u64 {
        if self.properties[node].accepts(request) {
            free_space[node].count_fitting(request)
        } else {
            0
        }
    }

    /// Places all tasks of a job in this free space. Nodes with the least free CPU in `preferred`
    /// are filled first, ties in the order of the file. Returns `None` if not all tasks fit.
    pub fn find_placements(
        &self,
        job: &Job,
        free_space: &[FreeSpace],
        preferred: &[FreeSpace],
    ) -> Option<Vec<Placement>> {
        let mut candidates: Vec<(u64, usize, u64)> = Vec::new();
        let mut total_fitting = 0_u64;
        for (node, space) in preferred.iter().enumerate() {
            let fitting = self.count_fitting(free_space, node, &job.request);
            if fitting > 0 {
                total_fitting = total_fitting.saturating_add(fitting);
                candidates.push((space.cpu_milli, node, fitting));
            }
        }
        if total_fitting < job.tasks {
            return None;
        }
        candidates.sort_unstable();
        let mut remaining_tasks = job.tasks;
        let mut placements = Vec::new();
        for (_, node, fitting) in candidates {
            let tasks = fitting.min(remaining_tasks);
            remaining_tasks -= tasks;
            placements.push(Placement {
                node,
                tasks,
                gpus: Vec::new(),
            });
            if remaining_tasks == 0 {
                break;
            }
        }
        Some(placements)
    }

    /// Returns the number of tasks of this request that fit on the empty cluster.
    pub fn count_fitting_when_empty(&self, request: &TaskRequest) -> u64 {
        let fitting = (0..self.free_space.len())
            .map(|node| self.count_fitting(&self.free_space, node, request));
        fitting.fold(0, u64::saturating_add)
    }
}

/// A copy of the free space from which running work is removed step by step. It counts how many
/// tasks of one request would fit.
pub struct ReleasePreview<'a> {
    cluster: &'a Cluster,
    request: &'a TaskRequest,
    pub free_space: Vec<FreeSpace>,
    fitting_by_node: Vec<u64>,
    fitting: u64,
}

impl<'a> ReleasePreview<'a> {
    pub fn new(cluster: &'a Cluster, request: &'a TaskRequest) -> Self {
        let free_space = cluster.free_space.clone();
        let nodes = 0..free_space.len();
        let fitting_by_node: Vec<u64> = nodes
            .map(|node| cluster.count_fitting(&free_space, node, request))
            .collect();
        Self {
            cluster,
            request,
            fitting: fitting_by_node
                .iter()
                .fold(0, |sum: u64, more| sum.saturating_add(*more)),
            free_space,
            fitting_by_node,
        }
    }

    pub fn fits(&self, tasks: u64) -> bool {
        self.fitting >= tasks
    }

    pub fn release(&mut self, request: &TaskRequest, placements: &[Placement]) {
        release(&mut self.free_space, request, placements);
        self.update_counts(placements);
    }

    /// Undoes a removal.
    pub fn restore(&mut self, request: &TaskRequest, placements: &[Placement]) {
        for placement in placements {
            self.free_space[placement.node].allocate_on(request, placement.tasks, &placement.gpus);
        }
        self.update_counts(placements);
    }

    fn update_counts(&mut self, placements: &[Placement]) {
        for Placement { node, .. } in placements {
            let fitting = self
                .cluster
                .count_fitting(&self.free_space, *node, self.request);
            self.fitting = self
                .fitting
                .saturating_sub(self.fitting_by_node[*node])
                .saturating_add(fitting);
            self.fitting_by_node[*node] = fitting;
        }
    }
}

/// Takes space for every placement, and records the GPUs of each.
pub fn occupy(free_space: &mut [FreeSpace], request: &TaskRequest, placements: &mut [Placement]) {
    for placement in placements {
        placement.gpus = free_space[placement.node].allocate(request, placement.tasks);
    }
}

pub fn release(free_space: &mut [FreeSpace], request: &TaskRequest, placements: &[Placement]) {
    for placement in placements {
        free_space[placement.node].release(request, placement.tasks, &placement.gpus);
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

    fn job(tasks: u64, request: TaskRequest) -> Job {
        Job {
            id: "j".into(),
            user: 0,
            class: 0,
            queue: None,
            submit_s: Some(0),
            runtime_s: Some(1),
            limit_s: None,
            tasks,
            request,
        }
    }

    #[test]
    fn the_fullest_nodes_are_filled_first() {
        let cluster = Cluster::new(&[node(4000, 0), node(2000, 0), node(2000, 0)]);
        let request = TaskRequest {
            cpu_milli: 1000,
            ..TaskRequest::default()
        };
        let placements = cluster.find_placements(
            &job(5, request.clone()),
            &cluster.free_space,
            &cluster.free_space,
        );
        let placed: Vec<(usize, u64)> = placements
            .unwrap()
            .iter()
            .map(|it| (it.node, it.tasks))
            .collect();
        assert_eq!(placed, [(1, 2), (2, 2), (0, 1)]);
        assert_eq!(
            cluster.find_placements(&job(9, request), &cluster.free_space, &cluster.free_space),
            None
        );
    }

    #[test]
    fn shares_use_the_tightest_gpu_and_are_returned() {
        let mut cluster = Cluster::new(&[node(9000, 2)]);
        let before = cluster.free_space.clone();
        let gpu_fraction = |milli| TaskRequest {
            gpu_count: 1,
            gpu_milli: milli,
            ..TaskRequest::default()
        };
        let space = &mut cluster.free_space[0];
        assert_eq!(space.count_fitting(&gpu_fraction(400)), 4);
        let first = space.allocate(&gpu_fraction(600), 1);
        assert_eq!(
            (space.allocate(&gpu_fraction(400), 1), first),
            (vec![0], vec![0])
        );
        assert_eq!(space.count_fitting(&gpu_fraction(1000)), 1);
        let request = TaskRequest {
            gpu_count: 2,
            ..gpu_fraction(1000)
        };
        assert_eq!(space.count_fitting(&request), 0);
        space.release(&gpu_fraction(600), 1, &[0]);
        space.release(&gpu_fraction(400), 1, &[0]);
        assert_eq!(cluster.free_space, before);
    }

    #[test]
    fn an_exclusive_task_has_no_neighbours() {
        let mut cluster = Cluster::new(&[node(9000, 0)]);
        let exclusive_task = TaskRequest {
            cpu_milli: 1000,
            exclusive: true,
            ..TaskRequest::default()
        };
        let shared_task = TaskRequest {
            exclusive: false,
            ..exclusive_task.clone()
        };
        let space = &mut cluster.free_space[0];
        assert_eq!(
            (
                space.count_fitting(&exclusive_task),
                space.count_fitting(&shared_task)
            ),
            (1, 9)
        );
        space.allocate(&exclusive_task, 1);
        assert_eq!(
            (
                space.count_fitting(&exclusive_task),
                space.count_fitting(&shared_task)
            ),
            (0, 0)
        );
        space.release(&exclusive_task, 1, &[]);
        space.allocate(&shared_task, 1);
        assert_eq!(
            (
                space.count_fitting(&exclusive_task),
                space.count_fitting(&shared_task)
            ),
            (0, 8)
        );
    }
}
