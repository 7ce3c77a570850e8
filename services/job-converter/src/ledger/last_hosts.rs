//! Last node of each processor, by user and service name. A later deployment of the same name uses
//! these nodes.

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, UserName};

/// User and name of a service.
type ServiceKey = (UserName, String);

#[derive(Default)]
pub struct LastHosts(BTreeMap<ServiceKey, ServiceHosts>);

#[derive(Default)]
struct ServiceHosts {
    /// Last node by processor, for example `0` or `0-0`.
    hosts: BTreeMap<String, NodeName>,
    /// Number of readable services of this name, open or ended.
    services: usize,
}

impl LastHosts {
    pub fn restore(&mut self, key: ServiceKey, processor: String, node: NodeName) {
        self.0.entry(key).or_default().hosts.insert(processor, node);
    }

    /// Adds one service of this name.
    pub fn add_service(&mut self, key: ServiceKey) {
        self.0.entry(key).or_default().services += 1;
    }

    /// Removes one service of this name. Returns true if no service of this name is readable any
    /// more. The nodes are then forgotten.
    pub fn remove_service(&mut self, key: &ServiceKey) -> bool {
        let Some(service) = self.0.get_mut(key) else {
            return false;
        };
        service.services = service.services.saturating_sub(1);
        let empty = service.services == 0;
        if empty {
            self.0.remove(key);
        }
        empty
    }

    /// Records the last node of a processor. Returns true if it changed.
    pub fn set(&mut self, key: &ServiceKey, processor: &str, node: &NodeName) -> bool {
        let Some(service) = self.0.get_mut(key) else {
            return false;
        };
        let before = service.hosts.insert(processor.to_owned(), node.clone());
        before.as_ref() != Some(node)
    }

    pub fn last_host(&self, key: &ServiceKey, processor: &str) -> Option<&NodeName> {
        self.0.get(key)?.hosts.get(processor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_hosts_are_known_while_a_service_of_the_name_is_readable() {
        let name = ("ann".parse().unwrap(), "echo".to_owned());
        let node: NodeName = "n1".parse().unwrap();
        let mut last_hosts = LastHosts::default();
        last_hosts.add_service(name.clone());
        assert!(last_hosts.set(&name, "0", &node));
        assert!(!last_hosts.set(&name, "0", &node));
        last_hosts.add_service(name.clone());
        assert!(!last_hosts.remove_service(&name));
        assert_eq!(last_hosts.last_host(&name, "0"), Some(&node));
        assert!(last_hosts.remove_service(&name));
        assert_eq!(last_hosts.last_host(&name, "0"), None);
    }
}
