//! Generation and deployment of a service.
//!
//! A process gets its deployment in `HAYWARD_DEPLOYMENT`, and its allocation repeats that variable.
//! This variable alone identifies outdated processes.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::AllocationEntry;
use hayward_vocabulary::WorkId;

pub const DEPLOYMENT_VARIABLE: &str = "HAYWARD_DEPLOYMENT";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Number that each accepted change increments.
    pub generation: u32,
    /// Generation of the last change to the program of the processes.
    pub deployment_number: u32,
}

impl Version {
    pub const FIRST: Self = Self {
        generation: 1,
        deployment_number: 1,
    };

    #[must_use]
    pub fn next(self, redeployed: bool) -> Self {
        let generation = self.generation.saturating_add(1);
        Self {
            generation,
            deployment_number: if redeployed {
                generation
            } else {
                self.deployment_number
            },
        }
    }

    /// Returns the id of the deployment. Placements use it, and it is never reused.
    pub fn deployment(self, id: &WorkId) -> String {
        format!("{id}-{}", self.deployment_number)
    }
}

/// Returns the number of the deployment for which an allocation was granted.
pub fn deployment_number(entry: &AllocationEntry) -> u32 {
    let environment = entry.launch.as_ref().map(|launch| &launch.environment);
    environment.map_or(1, parse_deployment_number)
}

/// Parses the number of a deployment. The first releases of Hayward set the id of the service
/// without a number. It counts as 1.
fn parse_deployment_number(environment: &BTreeMap<String, String>) -> u32 {
    let name = environment.get(DEPLOYMENT_VARIABLE);
    let number = name.and_then(|name| name.rsplit_once('-')?.1.parse().ok());
    number.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::WorkKind;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_deployment_id_without_a_number_counts_as_the_first() {
        let id = WorkId::from_uuid(WorkKind::Service, Uuid::from_u128(77));
        let version = Version::FIRST.next(true).next(false);
        assert_eq!((version.generation, version.deployment_number), (3, 2));
        let variables = |name: String| BTreeMap::from([(DEPLOYMENT_VARIABLE.to_owned(), name)]);
        assert_eq!(
            parse_deployment_number(&variables(version.deployment(&id))),
            2
        );
        assert_eq!(parse_deployment_number(&variables(id.to_string())), 1);
        assert_eq!(parse_deployment_number(&BTreeMap::new()), 1);
    }
}
