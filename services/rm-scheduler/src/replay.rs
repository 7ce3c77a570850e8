//! Plans a recorded round again. The same snapshot gives the same plan, byte for byte.
//!
//! Both plans are compared as JSON. White space between tokens does not count, so a reformatted
//! file is equal.

use std::collections::BTreeMap;

use hayward_rm_scheduler_capacity::CompositePlanner;
pub use hayward_rm_scheduler_domain::Plan;
use hayward_rm_scheduler_domain::{Planner as _, Snapshot};
use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Name of the format of the documents, with its version.
pub const FORMAT: &str = "hayward-round/1";
/// Maximum number of reported differences. A different plan usually differs in many places.
const MAX_DIFFERENCES: usize = 20;

/// A recorded document with the inputs and the plan of a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    pub format: String,
    pub round: u64,
    pub at: Timestamp,
    pub snapshot: Snapshot,
    pub plan: Plan,
}

impl Inputs {
    pub fn new(snapshot: Snapshot, plan: Plan) -> Self {
        Self {
            format: FORMAT.to_owned(),
            round: snapshot.round,
            at: snapshot.now,
            snapshot,
            plan,
        }
    }
}

/// The document of [`Inputs`], with snapshot and plan as raw JSON.
#[derive(Deserialize)]
struct RawInputs<'a> {
    format: String,
    round: u64,
    #[serde(borrow)]
    snapshot: &'a RawValue,
    #[serde(borrow)]
    plan: &'a RawValue,
}

/// Why a document cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("this round was not recorded")]
    Document(#[source] serde_json::Error),
    #[error("its format is {0:?}; this program reads {FORMAT:?}")]
    Format(String),
    #[error("its snapshot is not one this version plans from")]
    Snapshot(#[source] serde_json::Error),
    #[error("the plan cannot be written")]
    Plan(#[source] serde_json::Error),
}

/// Result of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replayed {
    pub round: u64,
    /// True if the new plan equals the recorded one.
    pub equal: bool,
    /// Number of grants in the new plan.
    pub grants: usize,
    /// Number of orders to leave in the new plan.
    pub vacates: usize,
    /// Number of pieces of work by reason of their verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// JSON pointers to the first places where the plans differ, with both values.
    pub differences: Vec<String>,
    /// The new plan.
    #[serde(skip)]
    pub plan: Plan,
}

/// A recorded round, ready to be planned again.
#[derive(Debug)]
pub struct Replay {
    round: u64,
    snapshot: Snapshot,
    /// Recorded plan as JSON text.
    plan: String,
}

impl Replay {
    /// Reads a recorded round.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a recorded round that this version can read.
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        let raw: RawInputs = serde_json::from_str(text).map_err(Unreadable::Document)?;
        if raw.format != FORMAT {
            return Err(Unreadable::Format(raw.format));
        }
        Ok(Self {
            round: raw.round,
            snapshot: serde_json::from_str(raw.snapshot.get()).map_err(Unreadable::Snapshot)?,
            plan: raw.plan.get().to_owned(),
        })
    }

    /// Plans the recorded round again, with the planners of the service.
    pub fn plan(&self) -> Plan {
        CompositePlanner.schedule(&self.snapshot)
    }

    /// Compares a plan with the recorded one.
    ///
    /// # Errors
    ///
    /// Fails if a plan is not valid JSON, which is a defect.
    pub fn compare(&self, plan: Plan) -> Result<Replayed, Unreadable> {
        let text = serde_json::to_string(&plan).map_err(Unreadable::Plan)?;
        let differences = if text == self.plan {
            Vec::new()
        } else {
            let read = |text| serde_json::from_str::<Value>(text).map_err(Unreadable::Plan);
            let mut found = Vec::new();
            collect_differences("", &read(&self.plan)?, &read(&text)?, &mut found);
            found
        };
        let mut verdicts: BTreeMap<String, u64> = BTreeMap::new();
        for verdict in plan.verdicts.values() {
            let reason = serde_json::to_value(verdict.reason).map_err(Unreadable::Plan)?;
            let reason = reason.as_str().unwrap_or_default().to_owned();
            *verdicts.entry(reason).or_default() += 1;
        }
        Ok(Replayed {
            round: self.round,
            equal: differences.is_empty(),
            grants: plan.grants.len(),
            vacates: plan.vacates.len(),
            verdicts,
            differences,
            plan,
        })
    }
}

/// Collects the differences of two documents, with JSON pointers.
fn collect_differences(pointer: &str, recorded: &Value, now: &Value, found: &mut Vec<String>) {
    if recorded == now || found.len() >= MAX_DIFFERENCES {
        return;
    }
    match (recorded, now) {
        (Value::Object(recorded), Value::Object(now)) => {
            let names: std::collections::BTreeSet<_> = recorded.keys().chain(now.keys()).collect();
            for name in names {
                let child = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                compare_entry(&child, (recorded.get(name), now.get(name)), found);
            }
        }
        (Value::Array(recorded), Value::Array(now)) => {
            for number in 0..recorded.len().max(now.len()) {
                compare_entry(
                    &format!("{pointer}/{number}"),
                    (recorded.get(number), now.get(number)),
                    found,
                );
            }
        }
        _ => found.push(format!(
            "{pointer}: recorded {}, now {}",
            shorten(recorded),
            shorten(now)
        )),
    }
}

/// Compares one member of an object or array. `sides` are the recorded and the new value.
fn compare_entry(pointer: &str, sides: (Option<&Value>, Option<&Value>), found: &mut Vec<String>) {
    match sides {
        (Some(recorded), Some(now)) => collect_differences(pointer, recorded, now, found),
        _ if found.len() >= MAX_DIFFERENCES => {}
        (Some(recorded), None) => {
            found.push(format!(
                "{pointer}: recorded {}, now absent",
                shorten(recorded)
            ));
        }
        (None, Some(now)) => found.push(format!("{pointer}: not recorded, now {}", shorten(now))),
        (None, None) => {}
    }
}

fn shorten(value: &Value) -> String {
    const MAX_CHARS: usize = 120;
    let text = value.to_string();
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
