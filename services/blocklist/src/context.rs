//! State shared by the ledger and the handlers.

use std::collections::BTreeMap;

use hayward_blocklist_api::StrategyView;
use hayward_blocklist_domain::Rule;
use hayward_rm_scheduler_api::evidence::ClearingEntry;
use parking_lot::RwLock;

use crate::config::Settings;

/// What a term is given, and what readers see of it that is not published.
pub struct Context {
    pub settings: Settings,
    pub clearings: RwLock<BTreeMap<String, ClearingEntry>>,
    pub strategy: RwLock<StrategyView>,
}

impl Context {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            clearings: RwLock::default(),
            // What a reader sees before the first term began is the strategy that never blocks.
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
