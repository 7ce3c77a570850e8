//! Shares come, change and go: in the lists of their work and of their nodes.

use std::sync::Arc;

use hayward_vocabulary::{AllocationId, UserName};

use super::{
    Load, Register, Shape, Share, Station, allocation_usage::Taken, apply_delta::Stirred,
    derive::set, lookup::OfShare,
};
use crate::{
    collections::id_list::Numbers,
    incremental::{join::both, prefetch::fetch_rows},
    input::snapshot::Allocation,
};

impl Register {
    pub(super) fn set_share(&mut self, found: &OfShare, stirred: &mut Stirred) {
        let (id, Some(allocation)) = (found.name, found.said) else {
            return;
        };
        let request = self.request(&allocation.work);
        let machine = self.machine(&allocation.node);
        let user_at = self.user(&allocation.user);
        let user = (self.user_names[user_at].clone(), user_at);
        let mut share = share((id, user), allocation, (request, machine));
        self.leave_remnant(&mut share);
        let at = if let Some(at) = found.at {
            self.unlink(at, stirred);
            self.shares[at] = share;
            at
        } else if let Some(at) = self.vacant_shares.pop() {
            self.shares[at] = share;
            at
        } else {
            self.shares.push(share);
            self.shares.len() - 1
        };
        if found.at.is_none() {
            self.share_at.insert(found.hash, at);
        }
        if allocation.fixed {
            self.fixed.insert(at);
        }
        if allocation.leaving || allocation.purged {
            self.leaving.insert(at);
        }
        let shares = &self.shares;
        let link = |list: &mut Numbers| {
            // News of allocations mostly is of the newest, so the search ends soon.
            let after = list.iter().rposition(|other| shares[other].id < *id);
            list.insert(after.map_or(0, |after| after + 1), at);
        };
        match request {
            Some(request) => link(&mut self.requests[request].held),
            None => link(self.orphans.entry(allocation.work.clone()).or_default()),
        }
        if let Some(machine) = machine {
            link(&mut self.machines[machine].held);
        }
        stirred.machines.extend(machine);
        stirred.requests.extend(request);
        stirred.shares.insert(at);
    }

    /// Takes out what is gone by the news; off its nodes beside what is done `then`, which does not
    /// look at nodes: most of the time goes into waiting for lists in memory.
    pub(super) fn remove_shares(
        &mut self,
        news: &[OfShare],
        stirred: &mut Stirred,
        then: impl FnOnce(&mut Self, &mut Stirred),
    ) {
        let said = news.iter().filter(|it| it.said.is_none());
        let mut gone: Vec<Gone> = Vec::with_capacity(news.len());
        gone.extend(said.filter_map(|it| self.gone(it)));
        let (mut nodes, shapes) = (self.lend_nodes(), Arc::clone(&self.shapes));
        let off_work = || {
            let work = || gone.iter().filter_map(Gone::request);
            fetch_rows(work().map(|at| self.requests[at].held.len()));
            fetch_first(work().map(|at| &self.requests[at].held));
            for it in &gone {
                let at = it.at();
                self.take_off_work((at, it.request()), stirred);
                set(&mut self.faulty, at, false);
                stirred.shares.remove(at);
                self.vacant_shares.push(at);
            }
            then(self, stirred);
        };
        let off_nodes = || {
            nodes.fetch(&gone);
            for it in &gone {
                nodes.take_off((it.at(), it.machine()), &shapes);
            }
        };
        both(gone.len(), off_work, off_nodes);
        self.return_nodes(nodes);
        let machines = gone.iter().filter_map(Gone::machine);
        stirred.machines.extend(machines);
    }

    /// What is known of a share that goes, from its load alone. That says whose it was before the
    /// news, and so does the share until work is taken up; what has no node there may have got one.
    fn gone(&self, share: &OfShare) -> Option<Gone> {
        let at = share.at?;
        let load = &self.loads[at];
        let machine = load.machine().or_else(|| self.shares[at].machine);
        Some(Gone {
            share: number(at)?,
            request: load.request().and_then(number),
            machine: machine.and_then(number),
        })
    }

    /// Takes a share out of all lists.
    fn unlink(&mut self, at: usize, stirred: &mut Stirred) {
        let Share {
            request, machine, ..
        } = self.shares[at];
        self.take_off_work((at, request), stirred);
        let (mut nodes, shapes) = (self.lend_nodes(), Arc::clone(&self.shapes));
        nodes.take_off((at, machine), &shapes);
        self.return_nodes(nodes);
        stirred.machines.extend(machine);
    }

    fn take_off_work(&mut self, (at, request): (usize, Option<usize>), stirred: &mut Stirred) {
        if let Some(request) = request {
            self.requests[request].held.take_out(at);
            stirred.requests.insert(request);
        } else {
            let work = &self.shares[at].work;
            if let Some(held) = self.orphans.get_mut(work) {
                held.take_out(at);
                if held.is_empty() {
                    self.orphans.remove(work);
                }
            }
        }
        for among in [
            &mut self.fixed,
            &mut self.leaving,
            &mut self.squatters,
            &mut self.strays,
            &mut self.unplaced,
            &mut self.unclassed,
        ] {
            set(among, at, false);
        }
    }

    fn lend_nodes(&mut self) -> Nodes {
        Nodes {
            machines: std::mem::take(&mut self.machines),
            loads: std::mem::take(&mut self.loads),
            taken: std::mem::take(&mut self.taken),
        }
    }

    fn return_nodes(&mut self, nodes: Nodes) {
        (self.machines, self.loads, self.taken) = (nodes.machines, nodes.loads, nodes.taken);
    }
}

/// A share that goes, with the work and the node whose lists it is in.
struct Gone {
    share: u32,
    request: Option<u32>,
    machine: Option<u32>,
}

fn number(at: usize) -> Option<u32> {
    u32::try_from(at).ok()
}

impl Gone {
    fn at(&self) -> usize {
        self.share as usize
    }

    fn request(&self) -> Option<usize> {
        self.request.map(|at| at as usize)
    }

    fn machine(&self) -> Option<usize> {
        self.machine.map(|at| at as usize)
    }
}

/// What nodes hold, while it is brought up to date beside everything else.
struct Nodes {
    machines: Vec<Station>,
    loads: Vec<Load>,
    taken: Vec<Taken>,
}

impl Nodes {
    /// Has the memory come of what these are taken out of.
    fn fetch(&self, gone: &[Gone]) {
        let machines = || gone.iter().filter_map(Gone::machine);
        fetch_rows(machines().map(|at| self.machines[at].held.len()));
        fetch_rows(machines().map(|at| self.taken[at].others));
        fetch_first(machines().map(|at| &self.machines[at].held));
    }

    /// Takes a share off this node, which it may not weigh on yet, and off that it weighs on.
    fn take_off(&mut self, (at, machine): (usize, Option<usize>), shapes: &[Shape]) {
        if let Some(machine) = machine {
            self.machines[machine].held.take_out(at);
        }
        if let Some(load) = self.loads.get_mut(at) {
            load.leave(&mut self.taken, shapes);
        }
    }
}

fn fetch_first<'l>(lists: impl Iterator<Item = &'l Numbers>) {
    fetch_rows(lists.filter_map(Numbers::first));
}

fn share(
    (id, (user, user_at)): (&AllocationId, (UserName, usize)),
    it: &Allocation,
    (request, machine): (Option<usize>, Option<usize>),
) -> Share {
    Share {
        id: id.clone(),
        work: it.work.clone(),
        request,
        kind: it.kind,
        user,
        user_at,
        class: if it.fixed {
            it.class.clone()
        } else {
            String::new()
        },
        node: it.node.clone(),
        machine,
        order: it.order,
        size: it.size.clone(),
        gpus: it.gpus.clone(),
        fixed: it.fixed,
        running: it.running,
        granted_at: it.granted_at,
        started_at: it.started_at,
        running_since: it.running_since,
        investment_ms: it.investment_ms,
        item_ms: it.item_ms,
        leaving: it.leaving || it.purged,
        purged: it.purged,
    }
}
