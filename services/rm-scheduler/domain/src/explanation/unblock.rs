//! The unblock of waiting work: the smallest change that would let one more process start. Also the
//! further reasons for the wait.
//!
//! Both come from the state after all decisions and from the functions that decided.

mod structural_changes;

use rustc_hash::FxHashMap;

use crate::{
    ids::{ClassIx, NodeIx, ShapeIx, WorkIx},
    input::snapshot::Policy,
    output::{
        detail::LackingDimension,
        plan::{Reason, Unblock},
    },
    state::{
        RoundState, WorkShape,
        permanent_reasons::{PermanentReasons, find_missing_resource},
    },
};

/// Node that lacks the least for one more process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NearestNode {
    pub node: NodeIx,
    /// Quanta that the node lacks.
    pub lacking_quanta: u64,
    /// Dimension that the node lacks although it has enough quanta. `None` if it lacks none.
    pub lacking_dimension: Option<LackingDimension>,
}

impl NearestNode {
    /// Returns whether both nodes lead to the same verdict. A verdict names a node only if the node
    /// lacks quanta.
    pub fn give_same_verdict(one: Option<&Self>, other: Option<&Self>) -> bool {
        let reported = |nearest: &Self| {
            let named = (nearest.lacking_quanta > 0).then_some(nearest.node);
            (named, nearest.lacking_quanta, nearest.lacking_dimension)
        };
        one.map(reported) == other.map(reported)
    }
}

/// Finds unblocks and further reasons. Caches results that several pieces of work share in one
/// round.
#[derive(Default)]
pub(crate) struct UnblockFinder {
    nearest: FxHashMap<WorkShape, Option<NearestNode>>,
    smaller_processes: FxHashMap<WorkShape, Option<u64>>,
    permanent_reasons: PermanentReasons,
    /// Whether the class competes with another class, by class.
    competitors: FxHashMap<ClassIx, bool>,
}

impl UnblockFinder {
    /// Returns the reasons that would remain if the primary one were resolved.
    pub fn further_reasons(
        &mut self,
        state: &RoundState,
        work: WorkIx,
        primary: Reason,
    ) -> Vec<Reason> {
        let work_state = &state.work[work];
        if work_state.class.is_none() {
            return Vec::new();
        }
        let mut reasons = Vec::new();
        let mut add = |reason: Reason| reasons.extend((reason != primary).then_some(reason));
        let permanent = self.permanent_reasons.find(state, work);
        permanent.into_iter().for_each(&mut add);
        let has_no_host_of_size = structural_changes::has_no_host_of_size(state, work);
        if has_no_host_of_size {
            add(Reason::NoHostOfSize);
        }
        let has_host = permanent.is_none() && !has_no_host_of_size;
        let is_fair_share = state.policy(work) == Some(Policy::FairShare);
        if !is_fair_share
            && work_state.process_count() == 0
            && state.allotment_left(work, work_state.process_quanta) == 0
        {
            add(Reason::AllotmentExceeded);
        }
        if is_fair_share && work_state.entitlement == 0 && work_state.cap.now > 0 {
            add(Reason::ZeroShare);
        }
        let nearest = self.nearest(state, work);
        // Without a nearest node, all suitable nodes are closed.
        if nearest.map_or(has_host, |nearest| {
            nearest.lacking_quanta > 0 || nearest.lacking_dimension.is_some()
        }) {
            add(match state.policy(work) {
                Some(Policy::FairShare) => Reason::WaitingForPreemption,
                Some(Policy::Reserve) => Reason::ResourcesExhausted,
                _ => Reason::InsufficientResources,
            });
        }
        reasons
    }

    /// Returns the smallest change that would start one more process.
    pub fn unblock(
        &mut self,
        state: &RoundState,
        work: WorkIx,
        primary: Reason,
    ) -> Option<Unblock> {
        let work_state = &state.work[work];
        let quanta = work_state.process_quanta;
        if let Some(budget_stop) = state.find_budget_stop(work)
            && primary == Reason::WaitingForPreemption
        {
            let (user, percent) = (budget_stop.is_user_budget, budget_stop.percent);
            return Some(Unblock::RaisePreemptionBudget { user, percent });
        }
        let exhausted = [Reason::InsufficientResources, Reason::ResourcesExhausted];
        if exhausted.contains(&primary)
            && let Some(change) = structural_changes::free_fixed_space(state, work)
        {
            return Some(change);
        }
        Some(match primary {
            Reason::NoClass
            | Reason::UnknownClass
            | Reason::NotAuthorised
            | Reason::PolicyMismatch => Unblock::NameClass,
            Reason::AllotmentExceeded => structural_changes::fit_into_allotment(state, work)?,
            Reason::NoHostLargeEnough | Reason::NoHostOfSize => {
                match (
                    find_missing_resource(state, work),
                    self.smaller_process(state, work),
                ) {
                    (Some(name), _) => Unblock::OfferResource {
                        name: name.to_owned(),
                    },
                    (None, Some(quanta)) => Unblock::AskForLess { quanta },
                    (None, None) => Unblock::AddNode { quanta },
                }
            }
            Reason::NoListedMachine => structural_changes::list_or_add_node(state, work),
            Reason::AllBlocked => Unblock::OpenNode {
                node: find_blocked_node(state, work)?,
            },
            Reason::AntiAffinity => match self.nearest(state, work) {
                Some(nearest) if nearest.lacking_quanta > 0 => free_space_on(state, nearest),
                _ => Unblock::AddNode { quanta },
            },
            Reason::ZeroShare if self.has_competitors(state, work) => {
                Unblock::RaiseShare { quanta }
            }
            Reason::ZeroShare => Unblock::AddNode { quanta },
            Reason::WaitingForPreemption if work_state.reserved > 0 => Unblock::Wait {
                leaving_processes: work_state.reserved,
            },
            Reason::WaitingForPreemption
            | Reason::WaitingForDefragmentation
            | Reason::InsufficientResources
            | Reason::ResourcesExhausted => self.change_for_space(state, work),
            _ => return None,
        })
    }

    /// Returns the change that gives work space on its nearest node.
    fn change_for_space(&mut self, state: &RoundState, work: WorkIx) -> Unblock {
        let quanta = state.work[work].process_quanta;
        match self.nearest(state, work) {
            None => structural_changes::open_or_add_node(state, work),
            Some(nearest) if nearest.lacking_quanta > 0 => free_space_on(state, nearest),
            Some(nearest) if nearest.lacking_dimension.is_some() => Unblock::AddNode { quanta },
            Some(_) => Unblock::Wait {
                leaving_processes: 1,
            },
        }
    }

    /// Returns the nearest node for this work. The result is cached by shape, unless the work is
    /// constrained.
    pub fn nearest(&mut self, state: &RoundState, work: WorkIx) -> Option<NearestNode> {
        let nearest_node = |(node, lacking_quanta)| NearestNode {
            node,
            lacking_quanta,
            lacking_dimension: find_lacking_dimension(state, work, node)
                .filter(|_| lacking_quanta == 0),
        };
        if state.work_record(work).is_constrained() {
            return find_nearest_for_work(state, work).map(nearest_node);
        }
        let cached = self.nearest.entry(WorkShape::new(state, work));
        *cached.or_insert_with(|| find_nearest_for_shape(state, work).map(nearest_node))
    }

    /// Returns the nearest node for unconstrained work of this shape that does not need whole
    /// nodes.
    pub fn nearest_for_shape(
        &mut self,
        state: &RoundState,
        work: WorkIx,
        shape: ShapeIx,
    ) -> Option<NearestNode> {
        let shape = WorkShape {
            shape,
            needs_whole_nodes: false,
            quanta: state.index.shapes[shape].quanta,
        };
        let cached = self.nearest.get(&shape);
        cached.copied().unwrap_or_else(|| self.nearest(state, work))
    }

    /// Returns whether the class shares its tree, policy and priority with another class. Without
    /// one, a higher weight changes nothing.
    fn has_competitors(&mut self, state: &RoundState, work: WorkIx) -> bool {
        let Some(class) = state.work[work].class else {
            return false;
        };
        let group = |class: ClassIx| {
            let class_state = &state.classes[class];
            let tree = class_state.pool.map(|pool| state.forest.root(pool));
            (tree, class_state.class.policy, class_state.class.priority)
        };
        let others = || state.classes.indices().filter(|other| *other != class);
        let cached = self.competitors.entry(class);
        *cached.or_insert_with(|| others().any(|other| group(other) == group(class)))
    }

    /// Returns the largest process, in quanta, that an open node could hold. It is smaller than the
    /// present process.
    fn smaller_process(&mut self, state: &RoundState, work: WorkIx) -> Option<u64> {
        let find = || structural_changes::largest_smaller_process(state, work, u64::MAX);
        if state.work_record(work).is_constrained() {
            return find();
        }
        *self
            .smaller_processes
            .entry(WorkShape::new(state, work))
            .or_insert_with(find)
    }
}

fn free_space_on(state: &RoundState, nearest: NearestNode) -> Unblock {
    Unblock::FreeRoom {
        node: state.node_record(nearest.node).name.clone(),
        quanta: nearest.lacking_quanta,
    }
}

/// Returns the first dimension of the work that the future space of a node lacks, regardless of
/// quanta.
fn find_lacking_dimension(
    state: &RoundState,
    work: WorkIx,
    node: NodeIx,
) -> Option<LackingDimension> {
    let (space, size) = (state.future_free(node), state.size(work));
    let is_short_of = |name: &_, amount: &u64| {
        space
            .size
            .extras
            .get(name)
            .is_none_or(|available| available < amount)
    };
    let mut extras = size.extras.iter().filter(|(_, amount)| **amount > 0);
    if size.cpu_milli > space.size.cpu_milli {
        Some(LackingDimension::Cpu)
    } else if space.count_fitting_gpus(size.gpu_milli) == 0 || size.gpu_milli > space.size.gpu_milli
    {
        Some(LackingDimension::Gpu)
    } else if extras.any(|(name, amount)| is_short_of(name, amount)) {
        Some(LackingDimension::Other)
    } else {
        (size.memory_bytes > space.size.memory_bytes).then_some(LackingDimension::Memory)
    }
}

/// Returns the nearest node for all work of this shape, by future space that is not reserved.
fn find_nearest_for_shape(state: &RoundState, work: WorkIx) -> Option<(NodeIx, u64)> {
    let (home, quanta) = (state.home(work)?, state.work[work].process_quanta);
    let pools = match state.policy(work)? {
        Policy::FairShare => state.forest.subtree(home),
        Policy::FixedShare => std::slice::from_ref(&home),
        Policy::Reserve => return find_nearest_for_work(state, work),
    };
    state
        .derived
        .node_index
        .future_holes
        .nearest(state, pools, quanta)
}

/// Returns the nearest node for this piece of work, by future space.
fn find_nearest_for_work(state: &RoundState, work: WorkIx) -> Option<(NodeIx, u64)> {
    let work_state = &state.work[work];
    let needs_whole_node = state.policy(work) == Some(Policy::Reserve);
    let candidates = state.nodes.indices().filter(|node| {
        let node_state = &state.nodes[*node];
        let is_large_enough = node_state.quanta >= work_state.process_quanta
            && (!needs_whole_node || node_state.quanta == work_state.process_quanta);
        is_large_enough && node_state.is_schedulable() && state.is_permitted(work, *node)
    });
    let mut nearest: Option<(NodeIx, u64)> = None;
    for node in candidates {
        let future_quanta = state.future_quanta_for(node, Some(work));
        let lacking_quanta = work_state.process_quanta.saturating_sub(future_quanta);
        if nearest.is_none_or(|(_, min)| lacking_quanta < min) {
            nearest = Some((node, lacking_quanta));
        }
        if lacking_quanta == 0 {
            break;
        }
    }
    nearest
}

fn find_blocked_node(state: &RoundState, work: WorkIx) -> Option<hayward_vocabulary::NodeName> {
    let work_state = &state.work[work];
    let found = state.nodes.indices().find(|node| {
        let node_state = &state.nodes[*node];
        let avoided = state.avoids(work, *node);
        (state.node_record(*node).node.block.is_some() || avoided)
            && node_state.quanta >= work_state.process_quanta
            && (avoided || state.is_permitted(work, *node))
    });
    found.map(|node| state.node_record(node).name.clone())
}

#[cfg(test)]
mod tests {
    use crate::{
        input::{settings::Settings, snapshot::Policy},
        output::plan::{Reason, Unblock},
        tests::fixture::{Fixture, GIB, node_name, terms},
    };

    #[test]
    fn waiting_work_reports_the_smallest_change_that_helps() {
        let mut fixture = Fixture::eager().nodes(&[4, 4]);
        fixture.snapshot.tunables.global_allotment_bytes = Some(3 * GIB);
        fixture.service("holds", "a", 2);
        fixture.service("over", "a", 2);
        fixture.job("huge", "b", 9);
        fixture.service("late", "c", 3);
        fixture.step();
        fixture.service("later", "e", 3);
        let plan = fixture.step();
        let unblock = |id: &str| plan.verdicts[id].unblock.clone().unwrap();
        assert_eq!(plan.verdicts["over"].reason, Reason::AllotmentExceeded);
        assert_eq!(unblock("over"), Unblock::RaiseAllotment { bytes: GIB });
        // Fixed allocations hold two quanta of one node and one of the other.
        assert_eq!(unblock("huge"), Unblock::AskForLess { quanta: 2 });
        assert_eq!(plan.verdicts["later"].reason, Reason::InsufficientResources);
        let (node, quanta) = (node_name("n00"), 1);
        assert_eq!(unblock("later"), Unblock::FreeRoom { node, quanta });
    }

    /// If another class has the same priority, the unblock of `zero_share` is a higher weight.
    /// Otherwise it is more space. After either change, the work gets a process.
    #[test]
    fn the_unblock_of_zero_share_leads_to_a_share() {
        for (priority, expected) in [
            (10, Unblock::RaiseShare { quanta: 2 }),
            (5, Unblock::AddNode { quanta: 2 }),
        ] {
            let mut fixture = Fixture::eager().nodes(&[4]);
            fixture.snapshot.tunables.settings = Settings::reference();
            fixture.class("heavy", terms(Policy::FairShare, priority, 100), "default");
            fixture.job_in("heavy", "has", "a", 2).max_processes = 2;
            fixture.job("lacks", "b", 2);
            fixture.snapshot.classes.get_mut("fair").unwrap().weight = 1;
            fixture.step();
            let plan = fixture.step();
            assert_eq!(plan.verdicts["lacks"].reason, Reason::ZeroShare);
            assert_eq!(plan.verdicts["lacks"].unblock.as_ref(), Some(&expected));
            match expected {
                Unblock::AddNode { quanta } => fixture.node_in("default", "n01", quanta),
                _ => fixture.snapshot.classes.get_mut("fair").unwrap().weight = 100,
            }
            assert!(
                fixture.current_processes("lacks", 3).contains(&1),
                "{expected:?}"
            );
        }
    }

    /// The quantum counts memory only. The node has memory for a process, but lacks CPU (D6).
    #[test]
    fn a_lacking_dimension_outside_the_quantum_is_named() {
        let mut fixture = Fixture::eager().nodes(&[8]);
        fixture.node("n00").capacity.cpu_milli = 2_000;
        for (id, user) in [("first", "a"), ("second", "b")] {
            fixture.job(id, user, 1).size.cpu_milli = 1_000;
            fixture.step();
            fixture.step();
        }
        let verdict = fixture.plan().verdicts["second"].clone();
        let named = "too little cpu, which the quantum of the policy does not count";
        assert!(verdict.detail.ends_with(named), "{}", verdict.detail);
        assert_eq!(verdict.unblock, Some(Unblock::AddNode { quanta: 1 }));
    }

    #[test]
    fn a_receipt_names_the_preempted_work_and_its_beneficiary() {
        let mut fixture = Fixture::eager().nodes(&[2]);
        fixture.job("old", "a", 1);
        fixture.step();
        fixture.job("new", "b", 1);
        let plan = fixture.step();
        let receipt = &plan.receipts[0];
        assert_eq!(plan.receipts.len(), 1);
        assert_eq!((receipt.work.as_str(), receipt.user.as_str()), ("old", "a"));
        assert_eq!(receipt.beneficiary.as_ref().unwrap().as_str(), "new");
        assert_eq!(receipt.for_user.as_ref().unwrap().as_str(), "b");
        // The process ran for half of the second that passed.
        assert_eq!(receipt.lost_ms, 500);
        let unblock = plan.verdicts["new"].unblock.clone();
        assert_eq!(
            unblock,
            Some(Unblock::Wait {
                leaving_processes: 1
            })
        );
    }
}
