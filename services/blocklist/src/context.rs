//! State shared by the ledger and the handlers.

use std::collections::BTreeMap;

use hayward_blocklist_api::StrategyView;
use hayward_blocklist_domain::Rule;
use hayward_rm_scheduler_api::evidence::ClearingEntry;
use parking_lot::RwLock;

use crate::config::Settings;

/// Shared by the ledger and the handlers: settings, and state that is not published.
pub struct Context {
    pub settings: Settings,
    pub evacuations: RwLock<BTreeMap<String, ClearingEntry>>,
    pub strategy: RwLock<StrategyView>,
}

impl Context {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            evacuations: RwLock::default(),
            // Before the first term, readers see the strategy that never blocks.
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
