//! The effects of a restore, as text.

use std::collections::BTreeMap;

use crate::backup::history::History;
use crate::backup::manifest::Saved;
use crate::output::{Renderer, Table};
use crate::prepare::SERVICES;

pub struct Plan<'a> {
    pub saved: &'a Saved,
    pub before: &'a BTreeMap<String, History>,
}

impl Plan<'_> {
    pub fn text(&self, renderer: &Renderer, dry_run: bool) -> String {
        let header = ["service", "holds", "gets", "loses"];
        let mut table = Table::new(header).numbers(&[1, 2, 3]);
        let manifest = self.saved.manifest.as_ref();
        for (service, schema) in SERVICES {
            let now = self.before.get(schema.name);
            let then = manifest.and_then(|it| it.histories.get(schema.name));
            let number = |history: Option<&History>| match history {
                Some(history) => history.revision.to_string(),
                None => "-".to_owned(),
            };
            table.row([
                service.into(),
                number(now).into(),
                number(then).into(),
                lost(now, then).into(),
            ]);
        }
        let made = match manifest {
            Some(it) => format!(
                "made {} by hayward {}",
                renderer.ago(it.made_at),
                it.hayward
            ),
            None => "a plain dump, which does not say when it was made".to_owned(),
        };
        let done = if dry_run {
            "would be put back: nothing was changed"
        } else {
            "is put back, as another history"
        };
        let next = if dry_run {
            "What was submitted after it would be gone, and its containers ended.\n"
        } else {
            "Start the services and agents. What was submitted after it is gone, and its \
             containers are ended.\n"
        };
        let dump = self.saved.dump.display();
        format!("{dump} ({made}) {done}\n\n{}\n{next}", table.text(renderer))
    }
}

/// Returns the number of lost commits as text. It is `?` if the two histories differ, because their
/// revisions cannot be compared.
fn lost(now: Option<&History>, then: Option<&History>) -> String {
    match (now, then) {
        (None, _) => "0".to_owned(),
        (Some(now), Some(then)) if now.lineage == then.lineage => {
            (now.revision - then.revision).max(0).to_string()
        }
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_revisions_of_one_history_are_counted() {
        let at = |lineage: &str, revision| History {
            lineage: lineage.to_owned(),
            revision,
            epoch: 1,
            went_back: None,
        };
        assert_eq!(lost(Some(&at("a", 9)), Some(&at("a", 4))), "5");
        assert_eq!(lost(Some(&at("a", 4)), Some(&at("a", 9))), "0");
        assert_eq!(lost(Some(&at("a", 9)), Some(&at("b", 4))), "?");
        assert_eq!(lost(None, Some(&at("b", 4))), "0");
        assert_eq!(lost(Some(&at("a", 9)), None), "?");
    }
}
