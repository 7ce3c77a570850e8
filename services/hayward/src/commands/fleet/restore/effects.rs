//! Describes the effects of a restore as text: the revisions that each service has, gets and loses.

use std::collections::BTreeMap;

use crate::backup::manifest::RestoreSource;
use crate::backup::revision_histories::History;
use crate::output::{Renderer, Table};
use crate::prepare::SERVICES;

/// A restore, and the state of the database before it.
pub struct RestoreEffects<'a> {
    pub source: &'a RestoreSource,
    /// Histories in the database before the restore, by schema.
    pub before: &'a BTreeMap<String, History>,
}

impl RestoreEffects<'_> {
    pub fn render(&self, renderer: &Renderer, dry_run: bool) -> String {
        let header = ["service", "holds", "gets", "loses"];
        let mut table = Table::new(header).align_right(&[1, 2, 3]);
        let manifest = self.source.manifest.as_ref();
        for (service, schema) in SERVICES {
            let current = self.before.get(schema.name);
            let backup = manifest.and_then(|it| it.histories.get(schema.name));
            let number = |history: Option<&History>| match history {
                Some(history) => history.revision.to_string(),
                None => "-".to_owned(),
            };
            table.push_row([
                service.into(),
                number(current).into(),
                number(backup).into(),
                lost_commits(current, backup).into(),
            ]);
        }
        let origin = match manifest {
            Some(it) => format!(
                "made {} by hayward {}",
                renderer.ago(it.made_at),
                it.hayward_version
            ),
            None => "a plain dump, which does not say when it was made".to_owned(),
        };
        let result = if dry_run {
            "would be put back: nothing was changed"
        } else {
            "is put back, as another history"
        };
        let next_step = if dry_run {
            "What was submitted after it would be gone, and its containers ended.\n"
        } else {
            "Start the services and agents. What was submitted after it is gone, and its \
             containers are ended.\n"
        };
        let dump = self.source.dump.display();
        format!(
            "{dump} ({origin}) {result}\n\n{}\n{next_step}",
            table.render(renderer)
        )
    }
}

/// Returns the number of lost commits as text. It is `?` if the two histories differ, because their
/// revisions cannot be compared.
fn lost_commits(current: Option<&History>, backup: Option<&History>) -> String {
    match (current, backup) {
        (None, _) => "0".to_owned(),
        (Some(current), Some(backup)) if current.lineage == backup.lineage => {
            (current.revision - backup.revision).max(0).to_string()
        }
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_revisions_of_one_history_are_counted() {
        let history = |lineage: &str, revision| History {
            lineage: lineage.to_owned(),
            revision,
            epoch: 1,
            went_back: None,
        };
        assert_eq!(
            lost_commits(Some(&history("a", 9)), Some(&history("a", 4))),
            "5"
        );
        assert_eq!(
            lost_commits(Some(&history("a", 4)), Some(&history("a", 9))),
            "0"
        );
        assert_eq!(
            lost_commits(Some(&history("a", 9)), Some(&history("b", 4))),
            "?"
        );
        assert_eq!(lost_commits(None, Some(&history("b", 4))), "0");
        assert_eq!(lost_commits(Some(&history("a", 9)), None), "?");
    }
}
