//! Shares come, change and go: in the lists of their work and of their nodes.

use hayward_vocabulary::AllocationId;

use super::{Register, Share, absorb::Stirred, look_up::OfShare};
use crate::{beside::both, snapshot::Allocation};

impl Register {
    pub(super) fn set_share(&mut self, found: &OfShare, stirred: &mut Stirred) {
        let (id, Some(allocation)) = (found.name, found.said) else {
            return;
        };
        let request = self.request(&allocation.work);
        let machine = self.machine(&allocation.node);
        let user = self.user(&allocation.user);
        let mut share = share((id, user), allocation, (request, machine));
        self.leave_remnant(&mut share);
        let at = if let Some(at) = found.at {
            self.unlink(&[at], &[], stirred);
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
            self.share_at.insert(id.clone(), at);
        }
        if allocation.fixed {
            self.fixed.insert(at);
        }
        if allocation.leaving || allocation.purged {
            self.leaving.insert(at);
        }
        let shares = &self.shares;
        let link = |list: &mut Vec<usize>| {
            // News of allocations mostly is of the newest, so the search ends soon.
            let after = list.iter().rposition(|other| shares[*other].id < *id);
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

    pub(super) fn remove_shares(&mut self, gone: &[OfShare], stirred: &mut Stirred) {
        let known = gone.iter().filter_map(|it| Some((it.name, it.at?)));
        let (names, numbers): (Vec<&AllocationId>, Vec<usize>) = known.unzip();
        self.unlink(&numbers, &names, stirred);
        for at in numbers {
            self.faulty.remove(&at);
            stirred.shares.remove(at);
            self.vacant_shares.push(at);
        }
    }

    /// Takes shares out of all lists, and those that are gone out of the names. Most of the time
    /// goes into waiting for the lists in memory, so that is done side by side.
    fn unlink(&mut self, numbers: &[usize], gone: &[&AllocationId], stirred: &mut Stirred) {
        let (shares, orphans) = (&self.shares, &mut self.orphans);
        let (machines, requests) = (&mut self.machines, &mut self.requests);
        let share_at = &mut self.share_at;
        let of_nodes = || {
            for at in numbers {
                if let Some(machine) = shares[*at].machine {
                    machines[machine].held.retain(|other| other != at);
                }
            }
        };
        let of_work = || {
            for at in numbers {
                let share = &shares[*at];
                if let Some(request) = share.request {
                    requests[request].held.retain(|other| other != at);
                } else if let Some(held) = orphans.get_mut(&share.work) {
                    held.retain(|other| other != at);
                    if held.is_empty() {
                        orphans.remove(&share.work);
                    }
                }
            }
            for name in gone {
                share_at.remove(*name);
            }
        };
        both(numbers.len(), of_nodes, of_work);
        for at in numbers.iter().copied() {
            self.unload(at);
            for set in [
                &mut self.fixed,
                &mut self.leaving,
                &mut self.squatters,
                &mut self.unplaced,
                &mut self.unclassed,
            ] {
                set.remove(&at);
            }
            let share = &self.shares[at];
            stirred.machines.extend(share.machine);
            stirred.requests.extend(share.request);
        }
    }
}

fn share(
    (id, user_at): (&AllocationId, usize),
    it: &Allocation,
    (request, machine): (Option<usize>, Option<usize>),
) -> Share {
    Share {
        id: id.clone(),
        work: it.work.clone(),
        request,
        kind: it.kind,
        user: it.user.clone(),
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
