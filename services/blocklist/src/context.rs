//! State that the ledger shares with the handlers.

use std::collections::BTreeMap;

use hayward_blocklist_api::StrategyView;
use hayward_blocklist_domain::Rule;
use hayward_rm_scheduler_api::node_publications::ClearingEntry;
use parking_lot::RwLock;

use crate::config::Settings;

/// Settings, and state of the ledger that is not published.
pub struct Context {
    pub settings: Settings,
    /// Evacuations that rm-scheduler reports, by key.
    pub evacuations: RwLock<BTreeMap<String, ClearingEntry>>,
    pub strategy: RwLock<StrategyView>,
}

impl Context {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            evacuations: RwLock::default(),
            // Readers see the strategy that never blocks until the first term has loaded one.
            strategy: RwLock::new(StrategyView {
                name: Rule::None.name().to_owned(),
                parameters: BTreeMap::new(),
                by: None,
                at: None,
                revision: 0,
            }),
        }
    }
}
