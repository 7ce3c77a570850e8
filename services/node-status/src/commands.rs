//! Someone asked: one function per request. Each changes the working set, the rows and the
//! publication together, and refuses before it changes anything.

mod drain;
mod identity;

use hayward_node_status_api::drain::DrainState;
use hayward_node_status_api::{Heartbeat, HeartbeatAnswer, NODES, NodeEntry, Schedulable};
use hayward_node_status_domain::Health;
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::NodeName;

use crate::error::Refusal;
use crate::format;
use crate::ledger::Ledger;
use crate::model::{Bounds, Node, pool_of};
use crate::store::{DrainRow, Rows};

/// What settled a node: shown in its history.
#[derive(Default)]
pub(crate) struct Cause {
    /// Written and published although the judgement stays.
    pub news: bool,
    /// A line for the history even so.
    pub event: Option<String>,
    pub by: Option<String>,
    /// The judgement is another one than before.
    pub turned: bool,
}

impl Ledger {
    /// a first report creates the node, a later one updates and revives it.
    pub(crate) fn heartbeat(
        &mut self,
        (name, beat, digest): (NodeName, Heartbeat, u64),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<HeartbeatAnswer, Refusal> {
        self.stays_in_its_pool(&name, &beat)?;
        let mut cause = Cause::default();
        if !self.nodes.contains_key(&name) {
            let (has, most) = (self.nodes.len(), self.context.guards.max_nodes);
            if has >= most {
                // I25
                return Err(Refusal::Full(name, has, most));
            }
            self.meet(&name, &beat, moment);
            cause.news = true;
            let node = self.nodes.get(&name);
            let clipped = node.and_then(|node| node.clipped(&beat.inventory.capacity));
            let lines = ["first heard of".to_owned()].into_iter().chain(clipped);
            cause.event = Some(lines.collect::<Vec<_>>().join("; "));
        }
        self.hear(&name, (beat, digest), moment, &mut cause)?;
        self.settle(&name, cause, moment, batch);
        self.judge_drain(&name, moment, batch);
        let node = self.nodes.get(&name);
        Ok(HeartbeatAnswer {
            health: format::published(node.map_or(Health::Suspect, |node| node.health)),
            schedulable: node.is_none_or(|node| node.schedulable),
            heartbeat_ms: self.context.period_ms(),
            lease_ms: Some(self.context.lease_ms),
        })
    }

    /// S14: who was enrolled for one pool is not listened to while it says another.
    fn stays_in_its_pool(&self, name: &NodeName, beat: &Heartbeat) -> Result<(), Refusal> {
        let says = pool_of(&beat.inventory);
        let bounds = self.bounds.get(name).filter(|it| !it.admits(&says));
        let Some(pool) = bounds.and_then(|it| it.pool.clone()) else {
            return Ok(());
        };
        let node = name.clone();
        Err(Refusal::OtherPool { node, pool, says })
    }

    /// S15: what its enrolment says; where that says nothing, as much as any machine may claim. The
    /// token of an agent may also come from `prepare`, which enrols nobody.
    pub(crate) fn may_claim(&self, name: &NodeName) -> Bounds {
        let enrolled = self.bounds.get(name);
        let mut most = enrolled.map_or_else(Default::default, |it| it.most.clone());
        let any = &self.context.guards.most;
        for (own, any) in [
            (&mut most.memory_bytes, any.memory_bytes),
            (&mut most.cpu_milli, any.cpu_milli),
            (&mut most.gpu_milli, any.gpu_milli),
        ] {
            if *own == 0 {
                *own = any;
            }
        }
        let pool = enrolled.and_then(|it| it.pool.clone());
        Bounds { most, pool }
    }

    fn meet(&mut self, name: &NodeName, beat: &Heartbeat, moment: &Moment) {
        let mut node = Node::first_heard(name.clone(), beat, moment.now);
        node.bounds = Some(self.may_claim(name));
        let placed = self.machines.get(name.as_str());
        node.placed = placed.map(|machine| machine.pool.clone());
        self.context.pulses.insert(name.clone(), node.pulse.clone());
        let now_ms = self.now_ms(moment);
        self.add(node, now_ms);
    }

    /// Takes a heartbeat of a known node in, and says what of it the history should tell.
    fn hear(
        &mut self,
        name: &NodeName,
        (beat, digest): (Heartbeat, u64),
        moment: &Moment,
        cause: &mut Cause,
    ) -> Result<(), Refusal> {
        let now_ms = self.now_ms(moment);
        let quiet_ms = self.context.limits.lost_ms;
        let Some(node) = self.nodes.get_mut(name) else {
            return Ok(());
        };
        if node.refused.contains(&beat.agent_instance) {
            return Err(Refusal::OtherAgent(name.clone()));
        }
        node.pulse.touch(now_ms);
        node.pulse.feels(beat.metrics.clone());
        let restarted = node.twins.heard(&beat.agent_instance, now_ms);
        let twins = !node.twins.rivals(quiet_ms, now_ms).is_empty();
        if let Some(drain) = self.drains.get_mut(name) {
            // I17: the word of one of two agents is no word, nor is one that was not looked for.
            let counts = beat.metrics.complete && !twins;
            drain.alive = counts.then_some(beat.metrics.containers);
        }
        if twins {
            // F28: neither of the two is believed before one of them is gone.
            node.pulse.decided(0);
            return Ok(());
        }
        let lines = node.differs(&beat, restarted);
        if !lines.is_empty() {
            cause.event = Some(lines.join("; "));
        }
        let before = node.counted_in().to_owned();
        cause.news |= node.says(beat, restarted);
        node.pulse.decided(digest);
        self.moved(name, &before);
        Ok(())
    }

    /// Keeps the counts of pools right when a node is no longer counted in `before`.
    pub(crate) fn moved(&mut self, name: &NodeName, before: &str) {
        let Some(node) = self.nodes.get(name) else {
            return;
        };
        if node.counted_in() == before {
            return;
        }
        let now = node.counted_in().to_owned();
        let silent = self.leave_pool(name, before);
        let pool = self.pools.entry(now.clone()).or_default();
        pool.size += 1;
        pool.silent.extend(silent.map(|at| (name.clone(), at)));
        self.stirred.insert(now);
    }

    /// Tells since when it was silent, if it is.
    fn leave_pool(&mut self, name: &NodeName, pool: &str) -> Option<u64> {
        let counted = self.pools.get_mut(pool)?;
        counted.size = counted.size.saturating_sub(1);
        self.stirred.insert(pool.to_owned());
        counted.silent.remove(name)
    }

    /// begins here: varied off, a node takes nothing new; only varying it on clears that.
    pub(crate) fn vary(
        &mut self,
        (name, change, by): (&NodeName, Schedulable, String),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<NodeEntry, Refusal> {
        let node = self
            .nodes
            .get_mut(name)
            .ok_or_else(|| Refusal::NoNode(name.clone()))?;
        let off_reason = match (change.schedulable, change.reason) {
            (true, _) => String::new(),
            (false, Some(reason)) => format!("varied off by {by}: {reason}"),
            (false, None) => format!("varied off by {by}"),
        };
        let flips = node.schedulable != change.schedulable;
        let news = flips || node.off_reason != off_reason;
        if flips {
            node.since = moment.now;
        }
        node.schedulable = change.schedulable;
        node.off_reason = off_reason;
        let event = (flips && change.schedulable).then(|| "varied on".to_owned());
        self.settle(
            name,
            Cause {
                news,
                event,
                by: Some(by),
                turned: false,
            },
            moment,
            batch,
        );
        self.entry_of(name)
    }

    /// Only what was given up may be removed: anything else would come back by itself, or run on
    /// unseen.
    pub(crate) fn remove(
        &mut self,
        (name, by): (&NodeName, &str),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        let node = self
            .nodes
            .get(name)
            .ok_or_else(|| Refusal::NoNode(name.clone()))?;
        if node.health != Health::Lost {
            let helps = what_helps(node.health, node.schedulable);
            let health = format::stored(node.health);
            return Err(Refusal::NotLost(name.clone(), health, helps));
        }
        tracing::info!(node = %name, by, "node removed");
        let pool = node.counted_in().to_owned();
        if let Some(due_ms) = node.due_ms {
            self.due.remove(&(due_ms, name.clone()));
        }
        self.leave_pool(name, &pool);
        self.nodes.remove(name);
        self.context.pulses.remove(name);
        if let Some(drain) = self.drains.get_mut(name).filter(|drain| drain.lasts()) {
            drain.state = DrainState::Cancelled;
            drain.state_since = moment.now;
            batch.rows.drains.insert(name.clone(), DrainRow::of(drain));
        }
        self.look_again(name, moment.now);
        batch.rows.nodes.insert(name.clone(), None);
        batch.withdraw(NODES, "", name.as_str());
        Ok(())
    }
}

/// What lets a node be removed that is not lost. What is silent may still run what it was given, so
/// it is given up first, with all that is there.
fn what_helps(health: Health, schedulable: bool) -> &'static str {
    match (health, schedulable) {
        (Health::Lost, _) => "it is",
        (Health::Suspect, true) => {
            "vary it off if it is gone for good, and it is given up as soon as it has been silent \
             for long enough"
        }
        (Health::Suspect, false) => {
            "it is varied off, and given up as soon as it has been silent for long enough"
        }
        (Health::Healthy | Health::Quiesced, _) => {
            "stop its agent, and it is given up when it has been silent for long enough"
        }
    }
}
