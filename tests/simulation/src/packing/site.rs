//! Nodes and pods with the properties that packing uses.
//!
//! Invariant: the load of a GPU is at most 1000 thousandths, and a whole GPU belongs to one pod.

use std::collections::BTreeMap;

use crate::trace::{Job, Node};

pub const WHOLE: u64 = 1000;

/// Resources of a pod. Its models are a set of bits. All bits are set if the pod names no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    pub cpu_milli: u64,
    pub gpu_count: u64,
    pub gpu_milli: u64,
    pub models: u64,
}

impl Shape {
    pub fn gpu_total(&self) -> u64 {
        self.gpu_count * self.gpu_milli
    }

    pub fn is_shared(&self) -> bool {
        self.gpu_milli > 0 && self.gpu_milli < WHOLE
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
pub struct Site {
    /// The model as a single bit.
    pub model: u64,
    pub cpu_milli: u64,
    pub memory_mib: u64,
    pub gpus: Vec<u64>,
}

impl Site {
    pub fn gpu_free(&self) -> u64 {
        self.gpus.iter().sum()
    }

    pub fn whole_free(&self) -> u64 {
        self.gpus.iter().filter(|free| **free == WHOLE).count() as u64
    }

    pub fn accepts(&self, shape: &Shape) -> bool {
        let gpus = match shape.gpu_milli {
            0 => true,
            WHOLE => self.whole_free() >= shape.gpu_count,
            milli => self.gpus.iter().any(|free| *free >= milli),
        };
        self.cpu_milli >= shape.cpu_milli && self.model & shape.models != 0 && gpus
    }

    pub fn fits(&self, pod: &Pod) -> bool {
        self.memory_mib >= pod.memory_mib && self.accepts(&pod.shape)
    }

    pub fn take(&mut self, pod: &Pod, gpus: &[usize]) {
        self.cpu_milli -= pod.shape.cpu_milli;
        self.memory_mib -= pod.memory_mib;
        for gpu in gpus {
            self.gpus[*gpu] -= pod.shape.gpu_milli;
        }
    }

    pub fn give(&mut self, pod: &Pod, gpus: &[usize]) {
        self.cpu_milli += pod.shape.cpu_milli;
        self.memory_mib += pod.memory_mib;
        for gpu in gpus {
            self.gpus[*gpu] += pod.shape.gpu_milli;
        }
    }

    /// Returns the tightest GPU for a share, or the free GPUs with the lowest numbers for whole
    /// GPUs.
    pub fn usual_gpus(&self, shape: &Shape) -> Vec<usize> {
        if shape.is_shared() {
            let able = self
                .gpus
                .iter()
                .enumerate()
                .filter(|(_, free)| **free >= shape.gpu_milli);
            return able
                .min_by_key(|(at, free)| (**free, *at))
                .map(|(at, _)| at)
                .into_iter()
                .collect();
        }
        let free = self
            .gpus
            .iter()
            .enumerate()
            .filter(|(_, free)| **free == WHOLE);
        free.map(|(at, _)| at)
            .take(usize::try_from(shape.gpu_count).unwrap_or(0))
            .collect()
    }
}

/// The GPU nodes of a cluster by id, and the bits of their models.
#[derive(Debug, Clone)]
pub struct Sites {
    pub list: Vec<Site>,
    pub empty: Vec<Site>,
    models: BTreeMap<String, u64>,
}

/// Sums over all nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    pub gpu_milli: u64,
    pub cpu_milli: u64,
    pub memory_mib: u64,
}

impl Sites {
    /// Collects the nodes with GPUs. Returns `None` if there are more models than bits.
    pub fn new(nodes: &[Node]) -> Option<Self> {
        let mut nodes: Vec<&Node> = nodes.iter().filter(|node| node.gpu_count > 0).collect();
        nodes.sort_by(|a, b| a.id.cmp(&b.id));
        let mut models = BTreeMap::new();
        for node in &nodes {
            let bit = u32::try_from(models.len())
                .ok()
                .and_then(|place| 1_u64.checked_shl(place))?;
            models.entry(node.gpu_model.clone()).or_insert(bit);
        }
        let site = |node: &&Node| Site {
            model: models[&node.gpu_model],
            cpu_milli: node.cpu_milli,
            memory_mib: if node.memory_mib == 0 {
                u64::MAX / 2
            } else {
                node.memory_mib
            },
            gpus: vec![WHOLE; usize::try_from(node.gpu_count).unwrap_or(0)],
        };
        let list: Vec<Site> = nodes.iter().map(site).collect();
        Some(Self {
            empty: list.clone(),
            list,
            models,
        })
    }

    pub fn pod(&self, job: &Job) -> Pod {
        let named = job.need.gpu_models.iter();
        let bits = named.map(|model| self.models.get(model).copied().unwrap_or(0));
        let models = if job.need.gpu_models.is_empty() {
            u64::MAX
        } else {
            bits.fold(0, |a, b| a | b)
        };
        Pod {
            id: job.id.clone(),
            class: job.class,
            shape: Shape {
                cpu_milli: job.need.cpu_milli,
                gpu_count: job.need.gpu_count,
                gpu_milli: job.need.gpu_milli,
                models,
            },
            memory_mib: job.need.memory_mib,
        }
    }

    fn sum(list: &[Site]) -> Amounts {
        list.iter().fold(Amounts::default(), |sum, site| Amounts {
            gpu_milli: sum.gpu_milli + site.gpu_free(),
            cpu_milli: sum.cpu_milli + site.cpu_milli,
            memory_mib: sum.memory_mib.saturating_add(site.memory_mib),
        })
    }

    pub fn capacity(&self) -> Amounts {
        Self::sum(&self.empty)
    }

    pub fn free(&self) -> Amounts {
        Self::sum(&self.list)
    }
}
