//! Replacement of placeholders by real tasks. It runs once per round, before normal placement.
//!
//! A task prefers a placeholder whose node accepts it. Otherwise the task takes the space of the
//! first placeholder that is large enough, and runs on another node with free space.

use std::cmp::Reverse;

use hayward_vocabulary::Timestamp;

use crate::core::State;
use crate::core::application::{Application, Effect, Step};
use crate::free_capacity::{NodeSpace, types_that_do_not_fit};
use crate::ids::TaskId;
use crate::messages::{Ask, Termination, ToFront};

impl Application {
    /// Runs one replacement pass. A task placed on another node than its placeholder is subtracted
    /// from the free space of that node.
    pub fn replace(&mut self, spaces: &mut [NodeSpace], now: Timestamp) -> Step {
        let mut step = Step::default();
        if !matches!(self.head.state, State::Accepted | State::Running) {
            return step;
        }
        let asks = self
            .pending
            .values()
            .filter(|it| self.can_replace_placeholder(it));
        let mut asks: Vec<Ask> = asks.cloned().collect();
        asks.sort_by(|a, b| {
            let key = |it: &Ask| (Reverse(it.priority), it.created_at);
            key(a).cmp(&key(b)).then_with(|| a.key.cmp(&b.key))
        });
        for ask in asks {
            self.replace_one(&ask, spaces, &mut step);
        }
        // A placeholder that is too small waives the minimum, so a repair may have become needless.
        step.refusal = self.check_minimum(now, &mut step).err();
        step
    }

    fn replace_one(&mut self, ask: &Ask, spaces: &mut [NodeSpace], step: &mut Step) {
        let mut first_fit: Option<TaskId> = None;
        let mut too_small = Vec::new();
        let mut on_placeholder_node = None;
        for (key, allocation) in self.placeholders() {
            if allocation.released.is_some() || allocation.ask.group != ask.group {
                continue;
            }
            let types = types_that_do_not_fit(&ask.size, &allocation.ask.size);
            if !types.is_empty() {
                too_small.push((key.clone(), types));
                continue;
            }
            first_fit.get_or_insert_with(|| key.clone());
            let mut space = spaces.iter().filter(|space| space.node == allocation.node);
            if space.any(|space| space.accepts(&ask.node_selector)) {
                on_placeholder_node = Some((key.clone(), allocation.node.clone()));
                break;
            }
        }
        self.release_too_small(ask, too_small, step);
        let on_other_node = || {
            let placeholder = first_fit?;
            let mut accepting = spaces
                .iter_mut()
                .filter(|it| it.accepts(&ask.node_selector));
            let space = accepting.find(|space| ask.size.fits(&space.free))?;
            // The task occupies the node from now on. Its queue is not charged twice.
            space.free.subtract(&ask.size);
            Some((placeholder, space.node.clone()))
        };
        let Some((placeholder, node)) = on_placeholder_node.or_else(on_other_node) else {
            return;
        };
        let ask = self.pending.remove(&ask.key).expect("the ask is pending");
        let allocation = self
            .allocations
            .get_mut(&placeholder)
            .expect("the placeholder has an allocation");
        allocation.released = Some(Termination::PlaceholderReplaced);
        step.effects.push(Effect::Replacing {
            ask: ask.key.clone(),
            placeholder: placeholder.clone(),
            node: node.clone(),
        });
        allocation.successor = Some((ask, node));
        step.send(ToFront::Release {
            keys: vec![placeholder],
            termination: Termination::PlaceholderReplaced,
        });
    }

    /// Releases all placeholders of a group if they are smaller than the real task. All
    /// placeholders of a group have the same size, so none would fit. The task is then placed
    /// normally.
    fn release_too_small(
        &mut self,
        ask: &Ask,
        too_small: Vec<(TaskId, Vec<String>)>,
        step: &mut Step,
    ) {
        let mut keys = Vec::new();
        for (placeholder, types) in too_small {
            let allocation = self
                .allocations
                .get_mut(&placeholder)
                .expect("the placeholder has an allocation");
            // In the protocol, placeholders that are too small end like those that timed out.
            allocation.released = Some(Termination::Timeout);
            keys.push(placeholder.clone());
            step.effects.push(Effect::PlaceholderMismatch {
                ask: ask.key.clone(),
                placeholder,
                types,
            });
        }
        if keys.is_empty() {
            return;
        }
        self.update_group(ask, |group| group.waived = true);
        step.send(ToFront::Release {
            keys,
            termination: Termination::Timeout,
        });
    }
}
