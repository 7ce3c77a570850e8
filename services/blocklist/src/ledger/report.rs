//! The invariants that blocklist can see (section 1 of the reliability rules): that what is over
//! has no effect, that the brakes hold, and that whatever ends by itself does.

use std::collections::BTreeMap;

use hayward_blocklist_domain::brake_check::{Guard, Withholds};
use hayward_blocklist_domain::{Item, Pool};
use hayward_publication::Moment;
use hayward_publication::invariants::Findings;
use hayward_service::invariants::timed;
use hayward_vocabulary::Timestamp;
use hayward_vocabulary::invariant::{Bound, Evidence, Finding, Inquiry, Rule, Transit, mortal};

use super::Ledger;
use crate::model::{Block, Key};

const BLOCKED: Rule = Rule {
    id: "I16",
    title: "blocks end when they are over, and the brakes on automatic ones hold",
};
/// What is over is taken away at once; a busy service is given this long.
const SOON_MS: u64 = 5_000;

impl Ledger {
    pub(super) fn report(&mut self, moment: &Moment) -> Findings {
        let settings = &self.context.settings;
        if !settings.enabled {
            let why = "the blocklist is switched off";
            return Findings {
                findings: vec![timed(|| Finding::not_checked(BLOCKED, why))],
                bounds: Vec::new(),
            };
        }
        let grace_ms = settings.check_interval_ms + SOON_MS;
        let pools = self.machines.heard().then(|| self.withheld());
        let (blocks, guard) = (&self.blocks, &mut self.guard);
        let blocked = timed(|| blocked(blocks, (moment.now, grace_ms), pools, guard));
        let transits = self.blocks.iter();
        let transits = transits.map(|(key, block)| of_block(key, block, moment.now));
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        // I25: against what the operator allows. A list held against the map that it is an index of
        // would only say that both have grown.
        let most = number(settings.max_items);
        let bound = |what, has| Bound {
            what,
            has: number(has),
            most,
        };
        Findings {
            findings: vec![blocked, timed(|| mortal(transits))],
            bounds: vec![
                bound("items and removals", self.blocks.len()),
                bound("keys that wait to be looked at", self.due.len()),
                bound("evacuations that wait for their turn", self.owed.len()),
            ],
        }
    }

    fn withheld(&self) -> BTreeMap<String, Withholds> {
        let brakes = self.context.settings.brakes();
        let ready = self.machines.ready().iter();
        let seen = ready.map(|(pool, ready)| {
            let allowed = brakes.allowed(Pool {
                ready: *ready,
                ..Pool::default()
            });
            let withholds = Withholds {
                ready: *ready,
                allowed,
                ..Withholds::default()
            };
            (pool.clone(), withholds)
        });
        let mut pools: BTreeMap<String, Withholds> = seen.collect();
        for (key, block) in &self.blocks {
            let item = block.slot.item.as_ref();
            let automatic = item.is_some_and(Item::automatic) || block.slot.trial.is_some();
            let node = key.whole_node().filter(|_| automatic);
            let Some((node, machine)) = node.and_then(|it| Some((it, self.machines.get(it)?)))
            else {
                continue;
            };
            let pool = pools.entry(machine.pool.clone()).or_default();
            pool.nodes.insert(node.to_owned());
        }
        pools
    }
}

/// I16.
fn blocked(
    blocks: &BTreeMap<Key, Block>,
    (now, grace_ms): (Timestamp, u64),
    pools: Option<BTreeMap<String, Withholds>>,
    guard: &mut Guard,
) -> Finding {
    let mut inquiry = Inquiry::into(BLOCKED);
    for (key, block) in blocks {
        let Some(item) = &block.slot.item else {
            continue;
        };
        let over = item.end.map_or(0, |end| now.ms_since(end));
        inquiry.examine((over > grace_ms).then(|| {
            Evidence::new(&key.published(), "is over, and still blocks").number("over_ms", over)
        }));
    }
    // Before rm-scheduler has said which machines there are, no automatic block is let pass.
    if let Some(pools) = pools {
        guard.look(pools, &mut inquiry);
    }
    inquiry.end()
}

/// I24: each key has to be looked at again, and when.
fn of_block(key: &Key, block: &Block, now: Timestamp) -> Transit<String> {
    let (state, deadline) = match (&block.slot.item, &block.slot.trial) {
        (Some(_), _) => ("is blocked", block.due),
        (None, Some(trial)) => ("is on trial", Some(trial.until)),
        (None, None) => ("is remembered as removed", block.due),
    };
    Transit {
        subject: key.published(),
        state,
        late_ms: deadline.map_or(0, |deadline| now.ms_since(deadline)),
        why: None,
    }
}

#[cfg(test)]
mod tests {
    use hayward_blocklist_domain::{Action, Trial};
    use hayward_vocabulary::invariant::SWEEP_MS;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_unix_ms(i64::try_from(ms).unwrap())
    }

    fn key() -> Key {
        Key::node(&hayward_vocabulary::NodeName::new("n1").unwrap())
    }

    fn block(end: Option<u64>) -> Block {
        let mut block = Block::default();
        block.slot.item = Some(Item {
            action: Action::Mark,
            causes: ["disk".to_owned()].into(),
            start: at(0),
            end: end.map(at),
            sources: ["manual:ann".to_owned()].into(),
        });
        block
    }

    #[test]
    fn i16_what_is_over_and_still_blocks() {
        let holds = |end, now| {
            let blocks = BTreeMap::from([(key(), block(end))]);
            blocked(&blocks, (at(now), 6_000), None, &mut Guard::default()).holds()
        };
        assert!(holds(Some(10_000), 16_000));
        assert!(!holds(Some(10_000), 16_001));
        assert!(holds(None, 1_000_000), "a permanent one is never over");
    }

    #[test]
    fn i16_a_way_around_the_brakes() {
        let blocks = BTreeMap::new();
        let mut guard = Guard::default();
        let mut look = |nodes: &[&str]| {
            let withholds = Withholds {
                ready: 10,
                allowed: 1,
                nodes: nodes.iter().map(|it| (*it).to_owned()).collect(),
            };
            let pools = BTreeMap::from([("default".to_owned(), withholds)]);
            blocked(&blocks, (at(0), 6_000), Some(pools), &mut guard).holds()
        };
        assert!(look(&["n1"]));
        assert!(!look(&["n1", "n2"]));
    }

    #[test]
    fn i24_a_trial_or_a_block_that_nobody_ended() {
        let mut tried = Block::default();
        tried.slot.trial = Some(Trial {
            since: at(0),
            until: at(10_000),
            causes: std::collections::BTreeSet::new(),
            sources: std::collections::BTreeSet::new(),
        });
        let holds = |block: &Block, now| mortal([of_block(&key(), block, at(now))]).holds();
        assert!(holds(&tried, 10_000 + SWEEP_MS));
        assert!(!holds(&tried, 10_001 + SWEEP_MS));
        let mut due = block(None);
        assert!(holds(&due, 1_000_000), "nothing is due");
        due.due = Some(at(10_000));
        assert!(!holds(&due, 10_001 + SWEEP_MS));
    }
}
