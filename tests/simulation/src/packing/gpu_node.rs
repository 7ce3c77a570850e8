//! Nodes with GPUs and pods, with the properties that packing uses.
//!
//! Invariant: the load of a GPU is at most 1000 thousandths, and a whole GPU belongs to one pod.

use std::collections::BTreeMap;

use crate::trace::{Job, Node};

/// Thousandths of a whole GPU.
pub const WHOLE_GPU_MILLI: u64 = 1000;

/// Resources of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    pub cpu_milli: u64,
    pub gpu_count: u64,
    /// Thousandths of each of the GPUs.
    pub gpu_milli: u64,
    /// Accepted GPU models, one bit for each. All bits are set if the pod names no model.
    pub models: u64,
}

impl Shape {
    pub fn gpu_total(&self) -> u64 {
        self.gpu_count * self.gpu_milli
    }

    pub fn is_shared(&self) -> bool {
        self.gpu_milli > 0 && self.gpu_milli < WHOLE_GPU_MILLI
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub id: String,
    pub class: usize,
    pub shape: Shape,
    pub memory_mib: u64,
}

/// Free space of one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuNode {
    /// The model as a single bit.
    pub model: u64,
    pub cpu_milli: u64,
    pub memory_mib: u64,
    /// Free thousandths of each GPU.
    pub gpus: Vec<u64>,
}

impl GpuNode {
    pub fn free_gpu_milli(&self) -> u64 {
        self.gpus.iter().sum()
    }

    pub fn free_whole_gpus(&self) -> u64 {
        self.gpus
            .iter()
            .filter(|free| **free == WHOLE_GPU_MILLI)
            .count() as u64
    }

    pub fn accepts(&self, shape: &Shape) -> bool {
        let gpus = match shape.gpu_milli {
            0 => true,
            WHOLE_GPU_MILLI => self.free_whole_gpus() >= shape.gpu_count,
            milli => self.gpus.iter().any(|free| *free >= milli),
        };
        self.cpu_milli >= shape.cpu_milli && self.model & shape.models != 0 && gpus
    }

    pub fn fits(&self, pod: &Pod) -> bool {
        self.memory_mib >= pod.memory_mib && self.accepts(&pod.shape)
    }

    pub fn allocate(&mut self, pod: &Pod, gpus: &[usize]) {
        self.cpu_milli -= pod.shape.cpu_milli;
        self.memory_mib -= pod.memory_mib;
        for gpu in gpus {
            self.gpus[*gpu] -= pod.shape.gpu_milli;
        }
    }

    pub fn release(&mut self, pod: &Pod, gpus: &[usize]) {
        self.cpu_milli += pod.shape.cpu_milli;
        self.memory_mib += pod.memory_mib;
        for gpu in gpus {
            self.gpus[*gpu] += pod.shape.gpu_milli;
        }
    }

    /// Returns the tightest GPU for a share, or the free GPUs with the lowest numbers for whole
    /// GPUs.
    pub fn select_gpus(&self, shape: &Shape) -> Vec<usize> {
        if shape.is_shared() {
            let candidates = self
                .gpus
                .iter()
                .enumerate()
                .filter(|(_, free)| **free >= shape.gpu_milli);
            return candidates
                .min_by_key(|(gpu, free)| (**free, *gpu))
                .map(|(gpu, _)| gpu)
                .into_iter()
                .collect();
        }
        let free = self
            .gpus
            .iter()
            .enumerate()
            .filter(|(_, free)| **free == WHOLE_GPU_MILLI);
        free.map(|(gpu, _)| gpu)
            .take(usize::try_from(shape.gpu_count).unwrap_or(0))
            .collect()
    }
}

/// The GPU nodes of a cluster by id, and the bits of their models.
#[derive(Debug, Clone)]
pub struct GpuNodes {
    /// Current free space.
    pub nodes: Vec<GpuNode>,
    /// Free space without pods.
    pub empty: Vec<GpuNode>,
    models: BTreeMap<String, u64>,
}

/// Sums over all nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceTotals {
    pub gpu_milli: u64,
    pub cpu_milli: u64,
    pub memory_mib: u64,
}

impl GpuNodes {
    /// Collects the nodes with GPUs. Returns `None` if there are more models than bits.
    pub fn new(nodes: &[Node]) -> Option<Self> {
        let mut nodes: Vec<&Node> = nodes.iter().filter(|node| node.gpu_count > 0).collect();
        nodes.sort_by(|first, second| first.id.cmp(&second.id));
        let mut models = BTreeMap::new();
        for node in &nodes {
            let bit = u32::try_from(models.len())
                .ok()
                .and_then(|shift| 1_u64.checked_shl(shift))?;
            models.entry(node.gpu_model.clone()).or_insert(bit);
        }
        let to_gpu_node = |node: &&Node| GpuNode {
            model: models[&node.gpu_model],
            cpu_milli: node.cpu_milli,
            // Memory that is not known counts as unlimited. Half of the range avoids overflows.
            memory_mib: if node.memory_mib == 0 {
                u64::MAX / 2
            } else {
                node.memory_mib
            },
            gpus: vec![WHOLE_GPU_MILLI; usize::try_from(node.gpu_count).unwrap_or(0)],
        };
        let gpu_nodes: Vec<GpuNode> = nodes.iter().map(to_gpu_node).collect();
        Some(Self {
            empty: gpu_nodes.clone(),
            nodes: gpu_nodes,
            models,
        })
    }

    pub fn to_pod(&self, job: &Job) -> Pod {
        let model_names = job.request.gpu_models.iter();
        let bits = model_names.map(|model| self.models.get(model).copied().unwrap_or(0));
        let models = if job.request.gpu_models.is_empty() {
            u64::MAX
        } else {
            bits.fold(0, |all, bit| all | bit)
        };
        Pod {
            id: job.id.clone(),
            class: job.class,
            shape: Shape {
                cpu_milli: job.request.cpu_milli,
                gpu_count: job.request.gpu_count,
                gpu_milli: job.request.gpu_milli,
                models,
            },
            memory_mib: job.request.memory_mib,
        }
    }

    fn sum_free(gpu_nodes: &[GpuNode]) -> ResourceTotals {
        gpu_nodes
            .iter()
            .fold(ResourceTotals::default(), |sum, gpu_node| ResourceTotals {
                gpu_milli: sum.gpu_milli + gpu_node.free_gpu_milli(),
                cpu_milli: sum.cpu_milli + gpu_node.cpu_milli,
                memory_mib: sum.memory_mib.saturating_add(gpu_node.memory_mib),
            })
    }

    pub fn capacity(&self) -> ResourceTotals {
        Self::sum_free(&self.empty)
    }

    pub fn free(&self) -> ResourceTotals {
        Self::sum_free(&self.nodes)
    }
}
