//! Verifies the hash chains page by page, without I/O.

use hayward_publication::audit::{AuditOutcome, AuditPage, Break, Link};
use serde::Serialize;

/// Chains of records, one for each service with at least one page.
#[derive(Debug, Default, Serialize)]
pub struct Verification {
    pub chains: Vec<Chain>,
}

/// Result of the verification of one service.
#[derive(Debug, Serialize)]
pub struct Chain {
    pub service: String,
    pub records: u64,
    /// Number of records about refused requests.
    pub refused: u64,
    /// Number of the last valid record.
    pub last: u64,
    /// Fault of the first invalid record, as text. `None` if all records are valid.
    pub broken: Option<String>,
    /// Number of the first invalid record. `None` if all records are valid.
    pub first_broken: Option<u64>,
    /// Position in the chain after the last verified record.
    #[serde(skip)]
    position: Link,
}

impl Verification {
    /// Adds a page. Pages of one service must come in order.
    pub fn add_page(&mut self, page: &AuditPage) {
        let index = self.chains.iter().position(|it| it.service == page.service);
        let index = index.unwrap_or_else(|| {
            self.chains.push(Chain::from(page));
            self.chains.len() - 1
        });
        if let Some(chain) = self.chains.get_mut(index)
            && chain.broken.is_none()
            && let Err(broken) = chain.verify_page(page)
        {
            chain.first_broken = Some(broken.record());
            chain.broken = Some(broken.to_string());
        }
    }

    pub fn is_valid(&self) -> bool {
        self.chains.iter().all(|chain| chain.broken.is_none())
    }
}

impl Chain {
    fn from(page: &AuditPage) -> Self {
        Self {
            service: page.service.clone(),
            records: 0,
            refused: 0,
            last: page.after.number,
            broken: None,
            first_broken: None,
            position: page.after,
        }
    }

    /// Verifies the records of a page, and after the last page the end of the chain.
    fn verify_page(&mut self, page: &AuditPage) -> Result<(), Break> {
        // Each page continues the chain at the record after the previous page.
        if page.after != self.position {
            return Err(match page.after.number {
                same if same == self.position.number => Break::Altered(same),
                other => Break::Gap {
                    after: self.position.number,
                    found: other + 1,
                },
            });
        }
        for record in &page.records {
            self.position.advance(record)?;
            self.records += 1;
            self.refused += u64::from(record.outcome == AuditOutcome::Refused);
            self.last = record.number;
        }
        // The last page must reach the end of the chain, otherwise records are missing there.
        match page.next_cursor {
            Some(_) => Ok(()),
            None => self.position.check_end(page.revision),
        }
    }
}
