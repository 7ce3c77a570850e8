//! Applies the events of a round to the simulated fleet, in order, before the round is planned.

use hayward_rm_scheduler_domain::snapshot::{Demand, Node};
use hayward_vocabulary::{NodeName, Size, Timestamp, UserName, WorkId, WorkKind};
use serde_json::{Map, Value};

use crate::{
    Error,
    amounts::{Limit, Milliseconds, NullableField},
    document::{Event, PoolDocument, SettingsDocument, Submit},
    fleet::SimulatedFleet,
    policy,
    validate::PolicyParts,
};

impl SimulatedFleet {
    /// Applies one event.
    pub fn apply(&mut self, event: &Event) -> Result<(), Error> {
        match event {
            Event::NodeReport {
                node,
                memory_gb,
                quiesced,
                cpu_milli,
                gpu_milli,
                _labels: _,
            } => {
                let size = Size {
                    memory_bytes: memory_gb.0,
                    cpu_milli: cpu_milli.unwrap_or(0),
                    gpu_milli: gpu_milli.unwrap_or(0),
                    ..Size::default()
                };
                self.report_node(node, size, quiesced.unwrap_or(false))?;
            }
            Event::NodeDead { node } => {
                if let Some(node) = self.node_mut(node)? {
                    node.lost = true;
                }
            }
            Event::VaryOff { node } => {
                if let Some(node) = self.node_mut(node)? {
                    node.offline = true;
                }
            }
            Event::VaryOn { node } => self.vary_on(node)?,
            Event::Submit(submit) => self.submit(submit)?,
            Event::JobProgress {
                job,
                work_remaining,
                time_per_item_ms,
                max_processes,
            } => {
                let work = self.work_id(job)?;
                self.record_task_time(&work, *time_per_item_ms);
                self.set_progress(&work, *work_remaining, *max_processes);
            }
            Event::JobCompleting { job } => self.mark_completing(job)?,
            Event::JobDone { job } => self.end_job(job)?,
            Event::Policy {
                classes,
                nodepools,
                users,
                settings,
            } => {
                let mut policy = self.policy.clone();
                policy.nodepools = nodepools.clone().unwrap_or(policy.nodepools);
                policy.classes = classes.clone().unwrap_or(policy.classes);
                self.reconfigure(settings.as_deref(), policy, users.as_ref())
                    .map_err(|error| self.event_error(&error))?;
            }
        }
        Ok(())
    }

    fn mark_completing(&mut self, job: &str) -> Result<(), Error> {
        let work = self.work_id(job)?;
        if let Some(demand) = self.snapshot.demand.get_mut(&work) {
            demand.completing = true;
        }
        Ok(())
    }

    /// Sets the predicted time of one task. Without a new value the last one stays.
    fn record_task_time(&mut self, work: &WorkId, task_time: NullableField<Milliseconds>) {
        let previous = self.task_ms.get(work).copied().flatten();
        let task_ms = task_time.or_previous(previous.map(Milliseconds));
        self.task_ms
            .insert(work.clone(), task_ms.map(|time| time.0));
    }

    /// Sets the remaining tasks and the limit. Without a new value the last one stays.
    fn set_progress(&mut self, work: &WorkId, remaining: Option<u64>, limit: Option<Limit>) {
        let Some(demand) = self.snapshot.demand.get_mut(work) else {
            return;
        };
        demand.remaining_tasks = remaining.unwrap_or(demand.remaining_tasks);
        if let Some(limit) = limit.filter(|_| demand.kind == WorkKind::Job) {
            demand.max_processes = limit.processes;
            demand.keeps_what_it_holds = limit.keeps_held;
        }
    }

    /// Applies a new configuration.
    fn reconfigure(
        &mut self,
        settings: Option<&SettingsDocument>,
        policy: PolicyParts,
        users: Option<&Vec<Map<String, Value>>>,
    ) -> Result<(), Error> {
        if let Some(settings) = settings {
            policy::apply_settings(settings, &mut self.snapshot, &mut self.defaults);
        }
        policy.apply_to(&mut self.snapshot, users)?;
        self.policy = policy;
        self.update_nodes();
        self.update_allocations();
        Ok(())
    }

    fn event_error(&self, message: &impl ToString) -> Error {
        Error::Event {
            cycle: self.round,
            message: message.to_string(),
        }
    }

    fn work_id(&self, name: &str) -> Result<WorkId, Error> {
        WorkId::new(name).map_err(|error| self.event_error(&error))
    }

    fn node_name(&self, name: &str) -> Result<NodeName, Error> {
        NodeName::new(name).map_err(|error| self.event_error(&error))
    }

    /// Returns the node, or `None` if it never reported.
    fn node_mut(&mut self, name: &str) -> Result<Option<&mut Node>, Error> {
        let name = self.node_name(name)?;
        Ok(self.snapshot.nodes.get_mut(&name))
    }

    /// Varies a node on. Fair shares leave when a node is varied off, even if it is on again before
    /// the plan of the round.
    fn vary_on(&mut self, name: &str) -> Result<(), Error> {
        let name = self.node_name(name)?;
        let Some(node) = self.snapshot.nodes.get_mut(&name) else {
            return Ok(());
        };
        let was_off = std::mem::take(&mut node.offline) && !node.lost;
        if was_off {
            self.end_allocations(&name, |allocation| !allocation.fixed);
        }
        Ok(())
    }

    /// Applies the report of a node. The first report creates the node in its pool. A later report
    /// updates the node and revives it if it was lost.
    fn report_node(&mut self, name: &str, size: Size, quiesced: bool) -> Result<(), Error> {
        let name = self.node_name(name)?;
        self.reported_bytes.insert(name.clone(), size.memory_bytes);
        let capacity = Size {
            memory_bytes: self.usable_bytes(size.memory_bytes),
            ..size
        };
        let was_lost = self.snapshot.nodes.get(&name).is_some_and(|node| node.lost);
        if was_lost {
            // The node was dead before it reported, so its allocations are lost.
            self.end_allocations(&name, |allocation| allocation.kind != WorkKind::Reservation);
        }
        let pool = self.pool_of(&name);
        let node = self.snapshot.nodes.entry(name).or_insert_with(|| Node {
            pool,
            capacity: Size::default(),
            takes_work: true,
            lost: false,
            offline: false,
            block: None,
            labels: std::collections::BTreeMap::new(),
        });
        node.capacity = capacity;
        node.takes_work = !quiesced;
        node.lost = false;
        Ok(())
    }

    /// Returns the memory of a node that may be allocated.
    fn usable_bytes(&self, reported: u64) -> u64 {
        let bytes = self.defaults.override_bytes.unwrap_or(reported);
        bytes.saturating_sub(self.defaults.reserved_bytes)
    }

    /// Returns the pool that lists the node, with or without domain, or else the first root pool
    ///
    fn pool_of(&self, node: &NodeName) -> String {
        let has_no_domain = |text: &str| !text.contains('.');
        let short_name = |text: &str| text.split('.').next().unwrap_or_default().to_owned();
        let is_name_of_node = |listed: &String| {
            listed == node.as_str()
                || ((has_no_domain(listed) || has_no_domain(node.as_str()))
                    && short_name(listed) == short_name(node.as_str()))
        };
        let lists_node = |pool: &&PoolDocument| pool.nodes.iter().any(is_name_of_node);
        let first_root_pool = || {
            self.policy
                .nodepools
                .iter()
                .find(|pool| pool.parent.is_none())
        };
        let pool = self
            .policy
            .nodepools
            .iter()
            .find(lists_node)
            .or_else(first_root_pool);
        pool.map(|pool| pool.name.clone()).unwrap_or_default()
    }

    /// Updates the pool and the usable memory of each node to a new configuration.
    fn update_nodes(&mut self) {
        let names: Vec<NodeName> = self.snapshot.nodes.keys().cloned().collect();
        for name in names {
            let pool = self.pool_of(&name);
            let usable_bytes =
                self.usable_bytes(self.reported_bytes.get(&name).copied().unwrap_or(0));
            if let Some(node) = self.snapshot.nodes.get_mut(&name) {
                node.pool = pool;
                node.capacity.memory_bytes = usable_bytes;
            }
        }
    }

    fn end_job(&mut self, job: &str) -> Result<(), Error> {
        let work = self.work_id(job)?;
        self.unknown_kinds.remove(&work);
        self.snapshot.demand.remove(&work);
        self.task_ms.remove(&work);
        let allocations = self.snapshot.allocations.iter();
        let allocations: Vec<_> = allocations
            .filter(|(_, allocation)| allocation.work == work)
            .map(|(id, _)| id.clone())
            .collect();
        for id in allocations {
            self.remove_allocation(&id);
        }
        Ok(())
    }

    fn submit(&mut self, submit: &Submit) -> Result<(), Error> {
        let work = self.work_id(&submit.job)?;
        if self.snapshot.demand.contains_key(&work) {
            return Err(self.event_error(&format!("{work} is there already")));
        }
        let user = UserName::new(submit.user.clone()).map_err(|error| self.event_error(&error))?;
        let (kind, managed) = match submit.kind.as_str() {
            "job" => (WorkKind::Job, false),
            "service" => (WorkKind::Service, false),
            "ap" => (WorkKind::Service, true),
            "reservation" => (WorkKind::Reservation, false),
            _ => {
                self.unknown_kinds.insert(work);
                return Ok(());
            }
        };
        let node_list = submit.machine_list.iter().flatten();
        let node_list = node_list.map(|name| self.find_node_name(name));
        let memory = submit.memory_gb.map(|memory| memory.0);
        let is_job = kind == WorkKind::Job;
        let limit = submit.max_processes.filter(|_| is_job);
        // The default limit of a job is 10. Other work has one process.
        let default_limit = if is_job { 10 } else { 1 };
        let demand = Demand {
            kind,
            user,
            class: submit.class.clone(),
            submitted_at: Timestamp::from_unix_ms(submit.submit_time.unwrap_or(0)),
            size: Size {
                memory_bytes: memory
                    .filter(|bytes| *bytes > 0)
                    .unwrap_or(self.defaults.memory_bytes),
                cpu_milli: submit.cpu_milli.unwrap_or(0),
                gpu_milli: submit.gpu_milli.unwrap_or(0),
                ..Size::default()
            },
            max_processes: limit.map_or(default_limit, |limit| limit.processes),
            anti_affinity: None,
            keeps_what_it_holds: limit.is_some_and(|limit| limit.keeps_held),
            queued: None,
            remaining_tasks: submit.work_items.unwrap_or(self.defaults.work_items).max(1),
            threads: submit
                .threads
                .filter(|threads| *threads > 0)
                .unwrap_or(self.defaults.threads),
            task_ms: None,
            node_list: node_list.collect::<Result<_, _>>()?,
            avoids: std::collections::BTreeSet::new(),
            service: self.service_id(submit.service_id.as_ref())?,
            managed,
            runnable: !is_job,
            completing: false,
        };
        let task_ms = submit.time_per_item_ms.map(|time| time.0);
        self.task_ms.insert(work.clone(), task_ms);
        self.snapshot.demand.insert(work, demand);
        Ok(())
    }

    /// Returns the node with this full or short name, or the name itself if no node has it.
    fn find_node_name(&self, name: &str) -> Result<NodeName, Error> {
        let name = self.node_name(name)?;
        let short_name = |name: &NodeName| name.as_str().split('.').next().map(str::to_owned);
        let mut nodes = self.snapshot.nodes.keys();
        let same_short_name = nodes.find(|node| {
            **node != name
                && short_name(node) == short_name(&name)
                && !self.snapshot.nodes.contains_key(&name)
        });
        Ok(same_short_name.cloned().unwrap_or(name))
    }

    /// Returns the service with this id. The id 0 means no service (C-10).
    fn service_id(&self, id: Option<&Value>) -> Result<Option<WorkId>, Error> {
        let text = match id {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        if text == "0" || text.is_empty() {
            return Ok(None);
        }
        self.work_id(&format!("service.{text}")).map(Some)
    }
}
